-- job_show: read the hashes of some jobs, as many as fit into one reply.
--
-- ARGV[1]  room  bytes of fields and values; the job that uses them up is the last one
-- ARGV[2..]  ids  of the jobs
--
-- Returns {"SHOWN", {field, value, …}, …} for the first jobs, at least one; empty if the job does not exist, or its key
-- is damaged

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
