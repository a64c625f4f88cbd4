-- queue_configure: pause a queue, or limit its running jobs, waiting jobs or starts; then wake a worker if jobs wait.
-- uses: queues gates
--
-- ARGV[1]  queue   name of the queue; it is created if needed
-- ARGV[2..]  fields  name of a field of its hash, value ('' to remove it)
--
-- Returns {"GATED"}

local queue = ARGV[1]
local key = queue_key(queue)

for at = 2, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    redis.call('HDEL', key, ARGV[at])
  else
    redis.call('HSET', key, ARGV[at], ARGV[at + 1])
  end
end
local gates = redis.call('HMGET', key, 'paused', 'max_running', 'rate_jobs')
GATES.note(queue, gates[1] or gates[2] or gates[3])
if not gates[3] then
  redis.call('UNLINK', key .. ':starts')
end
redis.call('ZADD', P .. 'queues', '0', queue)
QUEUES.forget_if_empty(queue)
if tonumber(redis.call('HGET', key, 'pending') or 0) > 0 then
  hint(queue)
end
return { 'GATED' }
