-- queue_purge: cancel the pending jobs of a queue, in steps.
-- uses: slots ends edges claims
--
-- ARGV[1]  queue  name of the queue
-- ARGV[2]  limit  most jobs to cancel, 1..100
--
-- Returns {"PURGED", cancelled, more, propagate}; more: 1 if others are left; propagate: 1 if edges are left to visit

local queue, limit = ARGV[1], tonumber(ARGV[2])
local MOST_EDGES = 100

local call, looked, cancelled = CLAIMS.pop_call(queue), 0, 0

local function purge(id)
  local job = read(id)
  looked = looked + 1
  if job and job.status == 'pending' and job.queue == queue then
    redis.call('HSET', job_key(id), 'cancel_requested_at', NOW_TEXT)
    ENDS.end_job(job, 'cancelled', { reason = 'cancelled', error = 'cancelled: its queue was purged' })
    cancelled = cancelled + 1
  end
end

while looked < limit do -- bound: `limit`
  call[14] = int(limit - looked)
  local popped = redis.call(unpack(call))
  if not popped then
    break
  end
  for _, id in ipairs(popped[2]) do
    purge(id)
  end
end
if looked < limit then
  for _, id in ipairs(SLOTS.waiting_in(queue, limit - looked)) do
    purge(id)
  end
end
flush()
local propagating = EDGES.propagate(MOST_EDGES)
flush()
return { 'PURGED', cancelled, looked == limit and 1 or 0, propagating and 1 or 0 }
