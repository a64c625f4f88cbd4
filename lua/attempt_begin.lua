-- attempt_begin: the command of a suspect starts now: from here on its worker is lost with it, not just beside it.
--
-- ARGV[1]  id     the job
-- ARGV[2]  fence  of the attempt
--
-- Returns {"BEGUN"} or {"LOST"}: somebody else has the attempt, or nobody

local id, fence = ARGV[1], ARGV[2]
local job = read(id)
if not job or job.status ~= 'running' or job.fence ~= fence then
  return { 'LOST' }
end
redis.call('HDEL', job_key(id), 'waits')
return { 'BEGUN' }
