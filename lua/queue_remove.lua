-- queue_remove: remove a queue without jobs, and its limits.
-- uses: queues gates
--
-- ARGV[1]  queue  name of the queue
--
-- Returns {"FORGOTTEN"}, {"HOLDS", number} with the number of its jobs, finished ones included, or {"UNKNOWN"}

local queue = ARGV[1]

if not redis.call('ZSCORE', P .. 'queues', queue) then
  return { 'UNKNOWN' }
end
local held = 0
for _, number in ipairs(redis.call('HMGET', queue_key(queue), 'pending', 'scheduled', 'blocked', 'running', 'reserved',
  'done', 'failed', 'cancelled', 'skipped')) do
  held = held + tonumber(number or 0)
end
if held > 0 then
  return { 'HOLDS', held }
end
QUEUES.forget(queue)
GATES.note(queue, false)
return { 'FORGOTTEN' }
