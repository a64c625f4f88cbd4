-- retry: start a new run of a job that failed or was cancelled, and re-arm the dependents skipped because of it.
-- uses: core timers ends edges
--
-- ARGV[1]  id   of the job
-- ARGV[2]  run  the run that the caller saw, '' for the present one
--
-- Returns {"RETRIED", propagate}, {"NOT_ENDED", status}, {"SUCCEEDED"}, {"SKIPPED", cause}, {"OTHER_RUN", run}
-- or {"UNKNOWN"}; propagate: 1 when edges are left to visit

local id, run = ARGV[1], ARGV[2]
local EDGES = 200

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

local key = job_key(id)
local fields = { 'run', int(job.run + 1), 'attempts', '0' }
if job.fence then -- a late repeat of the last result is still answered
  for _, value in ipairs({ 'ended_fence', job.fence, 'ended_as', job.status }) do
    fields[#fields + 1] = value
  end
end
redis.call('HSET', key, unpack(fields))
redis.call('HDEL', key, 'reason', 'exit_code', 'signal', 'error', 'fence', 'worker', 'started_at', 'finished_at',
  'cancel_requested_at', 'releases', 'losses', 'run_at')
job.run_at = nil
local waits = redis.call('EXISTS', key .. ':parents') == 1
local status = waits and 'blocked' or 'pending'
redis.call('HSET', key, 'status', status)
move(job, status)
push_propagate(job)
flush()
local propagating = propagate(EDGES)
flush()
return { 'RETRIED', propagating and 1 or 0 }
