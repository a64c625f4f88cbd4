-- gates: queues that are paused, or that limit how many jobs run at once or start within a period. The set `gates` has
-- their names. While there are few, `gated` in meta names them too, and a claim reads it together with the fence:
-- queues without a gate cost nothing. If there are too many, `gated` is `*`, and a claim asks the set.
--
-- A job that may not start is not popped. The number of running jobs is the queue's own count, so no slot can leak.
-- `queue:<q>:starts` (LIST) has the times of the last starts, as many as the rate allows.

local GATES = {} -- `due_ms`: until a visited queue allows a start again

do

local starts = {} -- queue → starts of this call that its count does not include yet
local MOST_NAMED = 50

-- Record whether a queue has a gate.
function GATES.note(queue, has_gate)
  local gates = P .. 'gates'
  redis.call(has_gate and 'SADD' or 'SREM', gates, queue)
  local number = redis.call('SCARD', gates)
  if number == 0 then
    redis.call('HDEL', KEYS[1], 'gated')
  elseif number > MOST_NAMED then
    redis.call('HSET', KEYS[1], 'gated', '*')
  else
    -- bound: MOST_NAMED
    redis.call('HSET', KEYS[1], 'gated', table.concat(redis.call('SMEMBERS', gates), ' '))
  end
end

-- Return how many starts the rate allows now, up to `wanted`. After a rate was lowered, the list has more starts than
-- the rate allows; then only the last ones count.
local function free_by_rate(queue, jobs, per_ms, wanted)
  local key = queue_key(queue) .. ':starts'
  local noted = redis.call('LLEN', key)
  local free, first = math.max(jobs - noted, 0), math.max(noted - jobs, 0)
  if free >= wanted then
    return wanted
  end
  for _, at in ipairs(redis.call('LRANGE', key, int(first), int(first + wanted - free - 1))) do
    local rest_ms = tonumber(at) + per_ms - NOW
    if rest_ms > 0 and rest_ms <= per_ms then -- otherwise it was recorded while the server's clock was ahead
      GATES.due_ms = math.min(GATES.due_ms or rest_ms, rest_ms)
      break
    end
    free = free + 1
  end
  return free
end

-- Return how many jobs of a gated queue may start now, up to `wanted`.
function GATES.room_in(queue, wanted)
  local paused, most, running, jobs, per_ms = unpack(
    redis.call('HMGET', queue_key(queue), 'paused', 'max_running', 'running', 'rate_jobs', 'rate_per_ms'))
  if paused then
    return 0
  end
  local room = wanted
  if most then
    room = math.min(room, tonumber(most) - tonumber(running or 0) - (starts[queue] or 0))
  end
  if jobs and room > 0 then
    room = math.min(room, free_by_rate(queue, tonumber(jobs), tonumber(per_ms), room))
  end
  return math.max(room, 0)
end

-- Record starts in a gated queue.
function GATES.note_starts(queue, number)
  starts[queue] = (starts[queue] or 0) + number
  local jobs, per_ms = unpack(redis.call('HMGET', queue_key(queue), 'rate_jobs', 'rate_per_ms'))
  if jobs then
    local key = queue_key(queue) .. ':starts'
    local times = {}
    for i = 1, number do
      times[i] = NOW_TEXT
    end
    redis.call('RPUSH', key, unpack(times))
    redis.call('LTRIM', key, '-' .. jobs, '-1')
    redis.call('PEXPIRE', key, per_ms)
  end
end

AFTER_FLUSH[#AFTER_FLUSH + 1] = function()
  starts = {}
  return false
end

end
