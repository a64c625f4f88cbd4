-- workflow_cancel: cancel a workflow: waiting jobs at once, running jobs by a stop. Only its final job still runs.
-- uses: edges workflows
--
-- ARGV[1]  workflow  id of the workflow
--
-- Returns {"STOPPED", propagate}, {"FINISHED"} if all its jobs have ended, or {"UNKNOWN"}
-- propagate: 1 if maintain_propagate must continue

local workflow = ARGV[1]
local MOST_EDGES = 200

local key = WORKFLOWS.key(workflow)
local row = redis.call('HMGET', key, 'size', 'done', 'failed', 'cancelled', 'skipped', 'stopped')
if not row[1] then
  return { 'UNKNOWN' }
end
local left = tonumber(row[1])
for i = 2, 5 do
  left = left - tonumber(row[i] or 0)
end
if row[6] ~= 'cancelled' then
  if left <= 0 then
    return { 'FINISHED' }
  end
  redis.call('HSET', key, 'stopped', 'cancelled')
  redis.call('HDEL', key, 'stopped_by')
  WORKFLOWS.go_on_stopping(workflow, 0)
end
local propagating = EDGES.propagate(MOST_EDGES)
flush()
return { 'STOPPED', propagating and 1 or 0 }
