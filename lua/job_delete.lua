-- job_delete: forget a finished job with all that is stored of it; the tasks of an array first, step by step.
-- uses: queues edges deletion steer
--
-- ARGV[1]  id  of the job
--
-- Returns {"DELETED"}, {"MORE"} when there are further tasks, or dependents to be told, {"NOT_ENDED", status}, {"NEEDED", why} or {"UNKNOWN"}

local id = ARGV[1]
local EDGES = 200

propagate(EDGES) -- so that those which depend on it are told of its end
flush()
local job = read(id)
if not visible(job) then
  return { 'UNKNOWN' }
end
if not TERMINAL[job.status] then
  return { 'NOT_ENDED', job.status }
end
if DELETION.is_walked(job) and redis.call('EXISTS', P .. 'propagate') == 1 then
  return { 'MORE' }
end
local done, why = STEER.delete(job)
if not done then
  return { 'NEEDED', why }
end
flush()
if why then
  return { 'MORE' }
end
QUEUES.forget_if_empty(job.queue)
return { 'DELETED' }
