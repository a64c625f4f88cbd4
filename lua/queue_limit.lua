-- queue_limit: set how many jobs may wait. The limits are in Redis, so that all API servers apply the same ones.
--
-- ARGV[1]  scope  'queues' (queues without a limit of their own: see queue_configure) or 'total'
-- ARGV[2]  most   jobs that may wait, '' for no limit
--
-- Returns {"LIMITED"}

local scope, most = ARGV[1], ARGV[2]
local field = scope == 'total' and 'max_pending_total' or 'max_pending'

if most == '' then
  redis.call('HDEL', KEYS[1], field)
else
  redis.call('HSET', KEYS[1], field, most)
end
return { 'LIMITED' }
