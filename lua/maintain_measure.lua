-- maintain_measure: note how fast queues drain: a refused submission gets its Retry-After from that.
--
-- The rate is a moving average of the jobs that end in a second, whatever their end. A call looks at some queues, the next
-- one goes on behind them: `measuring` in meta is "<when this round began> <ms since the last one> <rate up to here> <last
-- queue>". Only one call is made in a second, by whichever reaper comes first. Where one call sees all queues, the jobs that
-- wait are counted again.
--
-- ARGV[1]  limit  most queues to look at
--
-- Returns {"MEASURED", more} or {"TOO_EARLY"}; more: 1 when other queues are left for the next call

local limit = tonumber(ARGV[1])
local MEMORY_MS = 20000 -- what is longer ago hardly counts
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

-- The rate after a round in which `ended` jobs have ended; nil before there were two rounds.
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
  pcall(measure, queue) -- one that is damaged holds up nobody
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
-- Who deletes a queue's key takes its jobs out of the sum for all queues, too: else it would stay too high for ever. What is
-- staged has room reserved in queues that may not be listed yet.
if not more and behind == '' and redis.call('EXISTS', P .. 'batches') == 0
  and (redis.call('HGET', KEYS[1], 'waiting') or '0') ~= int(waiting) then
  redis.call('HSET', KEYS[1], 'waiting', int(waiting))
end
return { 'MEASURED', more and 1 or 0 }
