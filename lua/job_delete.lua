-- job_delete: delete a finished job and all data of it. The tasks of an array go first, in steps.
-- uses: queues edges deletion steer
--
-- ARGV[1]  id  of the job
--
-- Returns {"DELETED"}, {"MORE"} if tasks are left or dependents must still be notified, {"NOT_ENDED", status},
-- {"NEEDED", why} or {"UNKNOWN"}

local id = ARGV[1]
local MOST_EDGES = 200

EDGES.propagate(MOST_EDGES) -- its dependents must be notified of its end first
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
