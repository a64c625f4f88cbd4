-- gates: queues that are paused, or of which only so many jobs may run at once or start in a time. Their names stand in
-- `gated` in meta, which a claim reads with the fence: queues without a gate cost nothing.
--
-- Nothing is popped that may not start. How many run is the queue's own count, so no slot can leak; `queue:<q>:starts`
-- (LIST) has the times of its last starts, as many as its rate allows.

local gate_due_ms -- until a start is allowed again in a queue that this call has looked at
local starts = {} -- queue → starts of this call

-- Whether a queue has a gate.
local function is_gated(queue)
  local gated = meta_now()[2]
  return gated and string.find(' ' .. gated .. ' ', ' ' .. queue .. ' ', 1, true)
end

-- Of the starts that a rate allows, those that are free now, up to `wanted`.
local function free_by_rate(queue, jobs, per_ms, wanted)
  local key = queue_key(queue) .. ':starts'
  local free = jobs - redis.call('LLEN', key)
  if free >= wanted then
    return wanted
  end
  for _, at in ipairs(redis.call('LRANGE', key, '0', int(wanted - free - 1))) do
    local rest_ms = tonumber(at) + per_ms - NOW
    if rest_ms > 0 then
      gate_due_ms = math.min(gate_due_ms or rest_ms, rest_ms)
      break
    end
    free = free + 1
  end
  return free
end

-- How many jobs of a gated queue may start now, of those wanted.
local function room_in(queue, wanted)
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

-- Note starts in a gated queue.
local function note_starts(queue, number)
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
