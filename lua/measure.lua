-- measure: note how fast queues drain, for who is refused and wants to know when to come back.
--
-- The rate is a moving average of the jobs that end in a second, whatever their end. A pass over many queues takes
-- several calls; only one pass is made in a second, by whichever reaper comes first. Where one call sees all queues, the
-- jobs that wait are counted anew.
-- uses: core
--
-- ARGV[1]  since_ms  '' to begin a pass, else what the call before answered, ms
-- ARGV[2]  before    jobs per second of the queues of earlier calls
-- ARGV[3]  last      '1' with the last queues of the pass
-- ARGV[4..]  queues  names
--
-- Returns {"MEASURED", since_ms, rate} or {"TOO_EARLY"}
-- since_ms: time since the last pass, 0: there was none; rate: jobs per second of all queues up to here

local since_ms, before, last = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local MEMORY_MS = 20000 -- what is longer ago hardly counts
local LEAST_MS = 1000

if since_ms == '' then
  local last_at = redis.call('HGET', KEYS[1], 'rate_at')
  since_ms = last_at and NOW - tonumber(last_at) or 0
  if last_at and since_ms >= 0 and since_ms < LEAST_MS then
    return { 'TOO_EARLY' }
  end
  since_ms = math.max(since_ms, 0)
  redis.call('HSET', KEYS[1], 'rate_at', NOW_TEXT)
else
  since_ms = tonumber(since_ms)
end

local weight = 1 - math.exp(-since_ms / MEMORY_MS)

-- The rate after a pass in which `ended` jobs have ended; nil before there were two passes.
local function next_rate(rate, ended)
  if since_ms == 0 then
    return rate
  end
  local now = math.max(ended, 0) * 1000 / since_ms
  return rate and rate + weight * (now - rate) or now
end

local waiting = 0

local function measure(queue)
  local key = queue_key(queue)
  local row = redis.call('HMGET', key, 'done', 'failed', 'cancelled', 'skipped', 'deleted', 'ended', 'rate', 'pending',
    'scheduled', 'blocked', 'reserved')
  local ended = 0
  for i = 1, 5 do
    ended = ended + tonumber(row[i] or 0)
  end
  local rate = row[7] and tonumber(row[7])
  if row[6] then
    rate = next_rate(rate, ended - tonumber(row[6]))
  end
  local text = rate and string.format('%.3f', rate)
  if text and text ~= row[7] then
    redis.call('HSET', key, 'rate', text)
  end
  if int(ended) ~= row[6] then
    redis.call('HSET', key, 'ended', int(ended))
  end
  for i = 8, 11 do
    waiting = waiting + math.max(0, tonumber(row[i] or 0))
  end
  return rate or 0
end

-- Whether this call sees all that waits: every queue there is, and no submission with room that is only reserved.
local function sees_all()
  if ARGV[1] ~= '' or last ~= '1' or redis.call('EXISTS', P .. 'batches') == 1
    or redis.call('SCARD', P .. 'queues') ~= #ARGV - 3 then
    return false
  end
  for at = 4, #ARGV do
    if redis.call('SISMEMBER', P .. 'queues', ARGV[at]) == 0 then
      return false
    end
  end
  return true
end

local total = before
for at = 4, #ARGV do
  total = total + measure(ARGV[at])
end
local text = string.format('%.3f', total)
if last == '1' then
  redis.call('HSET', KEYS[1], 'rate', text)
end
-- Who deletes a queue's key takes its jobs out of the sum for all queues, too: else it would stay too high for ever.
if sees_all() and (redis.call('HGET', KEYS[1], 'waiting') or '0') ~= int(waiting) then
  redis.call('HSET', KEYS[1], 'waiting', int(waiting))
end
return { 'MEASURED', since_ms, text }
