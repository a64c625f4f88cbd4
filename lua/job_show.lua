-- job_show: read the hashes of some jobs, as many as fit into one answer.
--
-- ARGV[1]  room  bytes of fields and values: behind the job with which they are used up no other is read
-- ARGV[2..]  ids  of the jobs
--
-- Returns {"SHOWN", {field, value, …}, …}: the first of the jobs, one at least; empty where there is none, or its key is
-- damaged

local room = tonumber(ARGV[1])

local answer = { 'SHOWN' }
for at = 2, #ARGV do
  local row = redis.pcall('HGETALL', job_key(ARGV[at])) -- bound: the fields of a job, about 5 MB at most
  if row.err then
    row = {}
  end
  for _, part in ipairs(row) do
    room = room - #part
  end
  answer[at] = row
  if room <= 0 then
    break
  end
end
return answer
