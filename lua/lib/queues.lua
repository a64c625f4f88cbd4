-- queues: a queue is there as long as it holds jobs, or something was set for it.

local KEPT_FOR_RATE = { rate = true, ended = true, deleted = true } -- see measure
local SET = { max_pending = true, max_running = true, paused = true, rate_jobs = true }

-- Forget a queue that is empty.
local function forget_if_empty(queue)
  local key = queue_key(queue)
  local row = redis.call('HGETALL', key)
  for i = 2, #row, 2 do
    if SET[row[i - 1]] or row[i] ~= '0' and not KEPT_FOR_RATE[row[i - 1]] then
      return
    end
  end
  local gone = { key }
  for priority = 1, 9 do
    gone[#gone + 1] = key .. ':pending:' .. priority
  end
  redis.call('UNLINK', unpack(gone))
  redis.call('SREM', P .. 'queues', queue)
end
