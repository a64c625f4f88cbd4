-- maintain_measure: measure how fast queues drain. A refused submission gets its Retry-After from that rate.
--
-- The rate is a moving average of the jobs that end per second, in any terminal state. A call looks at some queues, and
-- the next call continues after them. Meanwhile `measuring` in meta is "<start of this round> <ms since the last round>
-- <rate up to here> <last queue>". Only one call per second measures, from whichever reaper comes first. If one call
-- sees all queues, it recounts the waiting jobs.
--
-- ARGV[1]  limit  most queues to look at
--
-- Returns {"MEASURED", more} or {"TOO_EARLY"}; more: 1 if other queues are left for the next call

local limit = tonumber(ARGV[1])
local MEMORY_MS = 20000 -- earlier ends hardly count
local LEAST_MS = 1000

local last_at, measuring = unpack(redis.call('HMGET', KEYS[1], 'rate_at', 'measuring'))
local since_last_ms = last_at and NOW - tonumber(last_at)
if since_last_ms and since_last_ms >= 0 and since_last_ms < LEAST_MS then
  return { 'TOO_EARLY' }
end
local began, since_ms, total, behind = string.match(measuring or '', '^(%d+) (%d+) (%S+) (.*)$')
if not began or behind == '' then -- a new round
  since_ms = math.max(0, began and NOW - tonumber(began) or since_last_ms or 0)
  began, total, behind = NOW_TEXT, 0, ''
end
since_ms, total = tonumber(since_ms), tonumber(total)

local weight = 1 - math.exp(-since_ms / MEMORY_MS)

-- Return the rate after a round in which `ended` jobs have ended; nil before the second round.
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
  total = total + (rate or 0)
end

local queues = redis.call('ZRANGE', P .. 'queues', behind == '' and '-' or '(' .. behind, '+', 'BYLEX', 'LIMIT', '0', int(limit))
for _, queue in ipairs(queues) do
  pcall(measure, queue) -- a damaged queue must not stop the others
end
local text, more = string.format('%.3f', total), #queues == limit
redis.call('HSET', KEYS[1], 'rate_at', NOW_TEXT)
if more or behind ~= '' then
  redis.call('HSET', KEYS[1], 'measuring', table.concat({ began, int(since_ms), text, more and queues[#queues] or '' }, ' '))
elseif measuring then
  redis.call('HDEL', KEYS[1], 'measuring')
end
if not more then
  redis.call('HSET', KEYS[1], 'rate', text)
end
-- If an operator deletes a queue's key, the total of all queues would stay too high for ever, so correct it here. A
-- staged submission has room reserved in queues that may not be listed yet.
if not more and behind == '' and redis.call('EXISTS', P .. 'batches') == 0
  and (redis.call('HGET', KEYS[1], 'waiting') or '0') ~= int(waiting) then
  redis.call('HSET', KEYS[1], 'waiting', int(waiting))
end
return { 'MEASURED', more and 1 or 0 }
