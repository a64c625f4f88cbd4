-- worker_leave: forget a worker that has stopped. A worker that died stays listed as lost.
--
-- ARGV[1]  worker  name of the worker
--
-- Returns {"LEFT"} or {"UNKNOWN"}

local worker = ARGV[1]
local known = redis.call('ZREM', P .. 'workers', worker)
redis.call('DEL', P .. 'worker:' .. worker)
return { known == 1 and 'LEFT' or 'UNKNOWN' }
