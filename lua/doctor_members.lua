-- doctor_members: find the members of an index of jobs whose jobs may have no place there; the doctor checks them.
--
-- ARGV[1]  jobs    ids of jobs, separated by spaces; at most 1000
-- ARGV[2]  status  the status of all jobs of the index; '' for any
-- ARGV[3]  queue   the queue of all jobs of the index; '' for any
--
-- Returns the ids of the other jobs, separated by spaces

local status, queue, others = ARGV[2], ARGV[3], {}

for id in string.gmatch(ARGV[1], '%S+') do
  local row = redis.pcall('HMGET', job_key(id), 'status', 'queue')
  if
    row.err
    or not row[1]
    or (status ~= '' and row[1] ~= status)
    or (queue ~= '' and (row[2] or 'default') ~= queue)
  then
    others[#others + 1] = id
  end
end
return table.concat(others, ' ')
