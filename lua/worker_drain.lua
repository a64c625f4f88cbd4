-- worker_drain: ask a worker to claim no more, to let its jobs finish, and to end.
--
-- The wish stays with the worker's description: every heartbeat is answered with it until the worker has gone, so that
-- a lost message is none. The message only has the worker send its next heartbeat at once.
--
-- ARGV[1]  worker  name of the worker
-- ARGV[2]  wish    how long its jobs may go on, ms; `own`: as long as the worker itself is set to
--
-- Returns {"DRAINING"} or {"UNKNOWN"}

local worker, wish = ARGV[1], ARGV[2]
local own_key = P .. 'worker:' .. worker

if not redis.call('HGET', own_key, 'about') then
  return { 'UNKNOWN' }
end
redis.call('HSET', own_key, 'drain', wish)
redis.call('PUBLISH', P .. 'cancels', worker)
return { 'DRAINING' }
