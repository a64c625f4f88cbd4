-- release: give running jobs back unfinished (drain, undelivered claim), at the head of their list.
-- uses: core ends
--
-- The attempt is refunded, at most 10 times per job. A job whose cancel was accepted ends `cancelled`.
--
-- ARGV[1..]  held  id, fence of each attempt
--
-- Returns {"RELEASED", status | "LOST", …} in the order of `held`

local REFUNDS = 10

local function release(id, fence)
  local job = read(id)
  if not job or job.status ~= 'running' or job.fence ~= fence then
    return 'LOST'
  end
  if job.cancel_requested_at then
    return conclude(job, { fence = fence, reason = 'cancelled' })
  end
  local key = job_key(id)
  if redis.call('HINCRBY', key, 'releases', '1') <= REFUNDS then
    redis.call('HSET', key, 'attempts', int(job.attempts - 1))
  end
  redis.call('HSET', key, 'status', 'pending')
  redis.call('HDEL', key, 'fence', 'worker', 'started_at')
  move(job, 'pending', true)
  return 'pending'
end

local answer = { 'RELEASED' }
for at = 1, #ARGV, 2 do
  answer[#answer + 1] = release(ARGV[at], ARGV[at + 1])
end
flush()
return answer
