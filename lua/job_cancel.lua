-- job_cancel: cancel a waiting job, or have the command of a running job stopped.
-- uses: ends edges arrays workflows
--
-- ARGV[1]  id       of the job
-- ARGV[2]  run      the run that the caller saw, '' for the current one
-- ARGV[3]  cascade  1: also cancel all direct and indirect dependents, even if the job was cancelled before
--
-- Returns {"CANCELLED" | "CANCELLING", propagate, tasks}, {"ENDED", status}, {"OTHER_RUN", run} or {"UNKNOWN"}
-- propagate: 1 if edges are left to visit; tasks: 1 if array_advance must continue

local id, run, cascade = ARGV[1], ARGV[2], ARGV[3]
local MOST_EDGES = 200

local job = read(id)
if not visible(job) then
  return { 'UNKNOWN' }
end
if run ~= '' and tonumber(run) ~= job.run then
  return { 'OTHER_RUN', job.run }
end
if TERMINAL[job.status] and job.status ~= 'cancelled' then
  return { 'ENDED', job.status }
end
if cascade == '1' and (job.children or ARRAYS.is_array(job)) then
  WORKFLOWS.push_cascade(job, WORKFLOWS.new_cascade())
end
if job.status == 'cancelled' then
  local propagating = cascade == '1' and EDGES.propagate(MOST_EDGES)
  flush()
  return { 'CANCELLED', propagating and 1 or 0, 0 }
end
local tasks, running = ARRAYS.is_array(job) and ARRAYS.row(id).started, false
if tasks then
  if not job.cancel_requested_at then
    redis.call('HSET', job_key(id), 'cancel_requested_at', NOW_TEXT)
  end
  ARRAYS.stop(job)
else
  running = ENDS.cancel(job)
end
flush()
local propagating = (cascade == '1' or not (tasks or running)) and EDGES.propagate(MOST_EDGES)
flush()
return { (tasks or running) and 'CANCELLING' or 'CANCELLED', propagating and 1 or 0, tasks and 1 or 0 }
