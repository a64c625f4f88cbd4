-- worker_drain: ask a worker to claim no more jobs, to let its jobs finish, and to exit.
--
-- The request stays in the worker's hash. Every heartbeat reply repeats it until the worker has left, so a lost
-- message does no harm. The message only makes the worker send its next heartbeat at once.
--
-- ARGV[1]  worker  name of the worker
-- ARGV[2]  wish    how long its jobs may continue, ms; `own`: as long as the worker's own setting
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
