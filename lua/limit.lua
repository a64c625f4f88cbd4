-- limit: set how many jobs may wait. The numbers stand in Redis, so that all who submit go by the same ones.
-- uses: core queues
--
-- ARGV[1]  scope  'queue', 'queues' (those without a limit of their own) or 'total'
-- ARGV[2]  queue  name of the queue where the scope is one, else ''
-- ARGV[3]  most   jobs that may wait, '' for no limit
--
-- Returns {"LIMITED"}

local scope, queue, most = ARGV[1], ARGV[2], ARGV[3]
local key = scope == 'queue' and queue_key(queue) or KEYS[1]
local field = scope == 'total' and 'max_pending_total' or 'max_pending'

if most == '' then
  redis.call('HDEL', key, field)
else
  redis.call('HSET', key, field, most)
end
if scope == 'queue' then
  redis.call('SADD', P .. 'queues', queue)
  forget_if_empty(queue)
end
return { 'LIMITED' }
