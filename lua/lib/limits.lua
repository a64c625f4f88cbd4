-- limits: how many jobs may wait, per queue and in total. Pending, scheduled, blocked and reserved jobs wait. A large
-- submission reserves its room from its first chunk until its jobs are admitted. Only submissions are ever refused.

local LIMITS = {}

do

local RATE_MS = 60000 -- a drain rate is valid for this long

-- The limits and counts in a queue's hash, read once per call.
local queue_rows = {}

function LIMITS.row_of(queue)
  local row = queue_rows[queue]
  if not row then
    local pending, scheduled, blocked, reserved, most, held = unpack(
      redis.call('HMGET', queue_key(queue), 'pending', 'scheduled', 'blocked', 'reserved', 'max_pending', 'held'))
    row = { ready = tonumber(pending or 0) - tonumber(held or 0), most = most }
    row.waiting = tonumber(pending or 0) + tonumber(scheduled or 0) + tonumber(blocked or 0) + tonumber(reserved or 0)
    queue_rows[queue] = row
  end
  return row
end

-- Return the limits that all queues share, and whether Redis has room for new work.
function LIMITS.read()
  local found = redis.call('HMGET', KEYS[1], 'full', 'max_pending', 'max_pending_total', 'waiting')
  return { full = found[1], most = found[2], most_in_all = found[3], waiting = tonumber(found[4] or 0) }
end

-- Return how many jobs per second leave a queue ('': all queues), '' if unknown.
local function rate_of(queue)
  local measured = tonumber(redis.call('HGET', KEYS[1], 'rate_at') or 0)
  return measured > NOW - RATE_MS and redis.call('HGET', queue == '' and KEYS[1] or queue_key(queue), 'rate') or ''
end

local function refusal(queue, most, waiting, size)
  return { 'QUEUE_FULL', queue, tonumber(most), waiting, size, rate_of(queue) }
end

-- Return {"FULL", number of jobs that exceed Redis' memory, rate}.
function LIMITS.no_memory(limits)
  return { 'FULL', tonumber(limits.full), rate_of('') }
end

-- Check whether jobs (queue → number) exceed a limit. Returns nil, or {"QUEUE_FULL", queue, limit, waiting, size,
-- rate}. queue '': the limit of all queues together; rate: jobs per second that leave there, '' if unknown.
function LIMITS.too_many(limits, sizes)
  local total = 0
  for queue, size in pairs(sizes) do
    local row = LIMITS.row_of(queue)
    local most = row.most or limits.most
    if most and size > 0 and row.waiting + size > tonumber(most) then -- otherwise as many jobs are replaced
      return refusal(queue, most, row.waiting, size)
    end
    total = total + size
  end
  if limits.most_in_all and total > 0 and limits.waiting + total > tonumber(limits.most_in_all) then
    return refusal('', limits.most_in_all, limits.waiting, total)
  end
  return nil
end

-- Count jobs of this call as waiting, for the submissions that follow in it.
function LIMITS.occupy(limits, sizes)
  for queue, size in pairs(sizes) do
    local row = LIMITS.row_of(queue)
    row.waiting = row.waiting + size
    limits.waiting = limits.waiting + size
  end
end

end
