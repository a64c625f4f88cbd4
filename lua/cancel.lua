-- cancel: end a job that waits, or have the command of a running one stopped.
-- uses: core timers ends edges
--
-- ARGV[1]  id   of the job
-- ARGV[2]  run  the run that the caller saw, '' for the present one
--
-- Returns {"CANCELLED", propagate}, {"CANCELLING"}, {"ENDED", status}, {"OTHER_RUN", run} or {"UNKNOWN"}
-- propagate: 1 when edges are left to visit

local id, run = ARGV[1], ARGV[2]
local SHORT_LIST, EDGES = 10000, 200

local job = read(id)
if not visible(job) then
  return { 'UNKNOWN' }
end
if run ~= '' and tonumber(run) ~= job.run then
  return { 'OTHER_RUN', job.run }
end
if job.status == 'cancelled' then
  return { 'CANCELLED', 0 }
end
if TERMINAL[job.status] then
  return { 'ENDED', job.status }
end
if job.status == 'running' then
  if not job.cancel_requested_at then
    redis.call('HSET', job_key(id), 'cancel_requested_at', NOW_TEXT)
  end
  redis.call('PUBLISH', P .. 'cancels', job.worker .. ' ' .. id .. ' ' .. job.fence)
  append(moves, 'cancelling', id)
  flush()
  return { 'CANCELLING' }
end
if job.status == 'pending' then
  -- In a long list the id stays and the claim drops it; a short one is kept clean.
  local list = queue_key(job.queue) .. ':pending:' .. job.priority
  if redis.call('LLEN', list) <= SHORT_LIST then
    redis.call('LREM', list, '1', id)
  end
end
redis.call('HSET', job_key(id), 'cancel_requested_at', NOW_TEXT)
end_job(job, 'cancelled', { reason = 'cancelled' })
flush()
local propagating = propagate(EDGES)
flush()
return { 'CANCELLED', propagating and 1 or 0 }
