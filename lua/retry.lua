-- retry: start a new run of a job that failed or was cancelled, and re-arm the dependents skipped because of it.
-- uses: core timers slots concurrency ends edges arrays
--
-- ARGV[1]  id   of the job
-- ARGV[2]  run  the run that the caller saw, '' for the present one
--
-- Returns {"RETRIED", propagate, tasks}, {"NOT_ENDED", status}, {"SUCCEEDED"}, {"SKIPPED", cause}, {"OTHER_RUN", run}
-- or {"UNKNOWN"}; propagate: 1 when edges are left to visit; tasks: 1 when `array` is to go on

local id, run = ARGV[1], ARGV[2]
local EDGES = 200

-- Have those of the tasks run again that have not succeeded.
local function retry_tasks(head)
  local skip = array_key(head.id) .. ':skip'
  local number = redis.call('SCARD', skip)
  count(array_key(head.id), 'cancelled', -number)
  count(queue_key(head.queue), 'reserved', number)
  redis.call('UNLINK', skip)
  redis.call('HSET', array_key(head.id), 'walk', 'retry 0')
  work_on_array(head.id)
end

local job = read(id)
if not visible(job) then
  return { 'UNKNOWN' }
end
if run ~= '' and tonumber(run) ~= job.run then
  return { 'OTHER_RUN', job.run }
end
if not TERMINAL[job.status] then
  return { 'NOT_ENDED', job.status }
end
if job.status == 'done' then
  return { 'SUCCEEDED' }
end
if job.status == 'skipped' or job.broken > 0 then
  return { 'SKIPPED', job.caused_by or '' }
end

start_anew(job)
if is_array(job) then
  retry_tasks(job)
end
flush()
local propagating = propagate(EDGES)
flush()
return { 'RETRIED', propagating and 1 or 0, is_array(job) and 1 or 0 }
