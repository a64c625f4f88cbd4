-- job_retry: start a new run of a job that failed or was cancelled, and re-arm the dependents skipped because of it.
-- uses: unique edges arrays tasks
--
-- ARGV[1]  id   of the job
-- ARGV[2]  run  the run that the caller saw, '' for the current one
--
-- Returns {"RETRIED", propagate, tasks}, {"NOT_ENDED", status}, {"SUCCEEDED"}, {"SKIPPED", cause, gone}, {"OTHER_RUN", run},
-- {"HELD", holder, key} (see lib/unique) or {"UNKNOWN"}
-- propagate: 1 if edges are left to visit; tasks: 1 if array_advance must continue; gone: 1 if `cause` is no longer stored

local id, run = ARGV[1], ARGV[2]
local MOST_EDGES = 200

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
  local cause = job.caused_by or ''
  return { 'SKIPPED', cause, visible(read(cause)) and 0 or 1 }
end

local head = ARRAYS.head_of(job)
if has_hook(job.hooks, 'task') and head == job then -- its array was deleted, and with it the command
  return { 'UNKNOWN' }
end
local holder, key = UNIQUE.kept_off_by(head)
if holder then
  return { 'HELD', holder, key }
end
if redis.call('HEXISTS', ARRAYS.key(head.id), 'deleted') == 1 then
  return { 'UNKNOWN' }
end
TASKS.rerun(job)
flush()
local propagating = EDGES.propagate(MOST_EDGES)
flush()
return { 'RETRIED', propagating and 1 or 0, ARRAYS.is_array(job) and 1 or 0 }
