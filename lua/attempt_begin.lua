-- attempt_begin: record that the command of a poison job starts: from now on, a lost worker counts against the job.
--
-- ARGV[1]  id     the job
-- ARGV[2]  fence  of the attempt
--
-- Returns {"BEGUN"}, or {"LOST"} if the attempt has ended, or another worker has the job

local id, fence = ARGV[1], ARGV[2]
local job = read(id)
if not job or job.status ~= 'running' or job.fence ~= fence then
  return { 'LOST' }
end
redis.call('HDEL', job_key(id), 'waits')
return { 'BEGUN' }
