-- cancel: end a job that waits, or have the command of a running one stopped.
-- uses: core timers slots concurrency ends edges arrays
--
-- ARGV[1]  id   of the job
-- ARGV[2]  run  the run that the caller saw, '' for the present one
--
-- Returns {"CANCELLED", propagate}, {"CANCELLING", tasks}, {"ENDED", status}, {"OTHER_RUN", run} or {"UNKNOWN"}
-- propagate: 1 when edges are left to visit; tasks: 1 when `array` is to go on

local id, run = ARGV[1], ARGV[2]
local EDGES = 200

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
if is_array(job) and array_row(id).started then
  redis.call('HSET', job_key(id), 'cancel_requested_at', NOW_TEXT)
  stop_array(job)
  flush()
  return { 'CANCELLING', 1 }
end
if cancel(job) then
  flush()
  return { 'CANCELLING', 0 }
end
flush()
local propagating = propagate(EDGES)
flush()
return { 'CANCELLED', propagating and 1 or 0 }
