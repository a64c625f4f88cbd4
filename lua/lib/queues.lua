-- queues: a queue exists as long as it has jobs, or a setting.

local QUEUES = {}

do

local KEPT_FOR_RATE = { rate = true, ended = true, deleted = true } -- see maintain_measure
local SET = { max_pending = true, max_running = true, paused = true, rate_jobs = true }

local function pending_lists(queue)
  local lists = {}
  for priority = 1, 9 do
    lists[priority] = queue_key(queue) .. ':pending:' .. priority
  end
  return lists
end

-- A queue is in `queues:pending` from its first pending job (see core) until a check finds none.
function QUEUES.forget_if_none_pending(queue)
  local key = queue_key(queue)
  local pending = redis.pcall('HGET', key, 'pending')
  pending = type(pending) == 'string' and tonumber(pending) or 0
  if pending <= 0 and redis.call('EXISTS', key .. ':keys', unpack(pending_lists(queue))) == 0 then
    redis.pcall('ZREM', P .. 'queues:pending', queue)
  end
end

function QUEUES.forget(queue)
  local key = queue_key(queue)
  redis.call('UNLINK', key, key .. ':starts', unpack(pending_lists(queue)))
  redis.call('ZREM', P .. 'queues', queue)
  redis.pcall('ZREM', P .. 'queues:pending', queue)
end

-- Forget a queue without jobs and settings.
function QUEUES.forget_if_empty(queue)
  local row = redis.pcall('HGETALL', queue_key(queue)) -- bound: a fixed set of counts and limits
  if row.err then -- a key of another type gives no counts: skip it
    return
  end
  for i = 2, #row, 2 do
    if SET[row[i - 1]] or row[i] ~= '0' and not KEPT_FOR_RATE[row[i - 1]] then
      return
    end
  end
  QUEUES.forget(queue)
end

end
