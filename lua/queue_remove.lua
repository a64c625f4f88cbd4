-- queue_remove: remove a queue without jobs, and its limits.
-- uses: gates
--
-- ARGV[1]  queue  name of the queue
--
-- Returns {"FORGOTTEN"}, {"HOLDS", number} with the number of its jobs, finished ones included, or {"UNKNOWN"}

local queue = ARGV[1]
local key = queue_key(queue)

if not redis.call('ZSCORE', P .. 'queues', queue) then
  return { 'UNKNOWN' }
end
local held = 0
for _, number in ipairs(redis.call('HMGET', key, 'pending', 'scheduled', 'blocked', 'running', 'reserved', 'done', 'failed',
  'cancelled', 'skipped')) do
  held = held + tonumber(number or 0)
end
if held > 0 then
  return { 'HOLDS', held }
end
local gone = { key, key .. ':starts' }
for priority = 1, 9 do
  gone[#gone + 1] = key .. ':pending:' .. priority
end
redis.call('UNLINK', unpack(gone))
redis.call('ZREM', P .. 'queues', queue)
redis.pcall('ZREM', P .. 'queues:pending', queue)
GATES.note(queue, false)
return { 'FORGOTTEN' }
