-- limits: how many jobs may wait, in a queue and in all. What waits is pending, scheduled, blocked, or reserved: a large
-- submission has its room from its first chunk on, until its jobs are admitted. Only submissions are ever refused.

local RATE_MS = 60000 -- a drain rate is believed for so long

-- What a queue's hash says; read once per call.
local queue_rows = {}

local function queue_row(queue)
  local row = queue_rows[queue]
  if not row then
    local found = redis.call('HMGET', queue_key(queue), 'pending', 'scheduled', 'blocked', 'reserved', 'max_pending', 'rate')
    row = { pending = tonumber(found[1] or 0), waiting = 0, most = found[5], rate = found[6] }
    for i = 1, 4 do
      row.waiting = row.waiting + tonumber(found[i] or 0)
    end
    queue_rows[queue] = row
  end
  return row
end

-- The limits that all queues share, and whether Redis has room for new work.
local function read_limits()
  local found = redis.call('HMGET', KEYS[1], 'full', 'max_pending', 'max_pending_total', 'waiting', 'rate', 'rate_at')
  return {
    full = found[1],
    most = found[2],
    all = { most = found[3], waiting = tonumber(found[4] or 0), rate = found[5] },
    rates_known = tonumber(found[6] or 0) > NOW - RATE_MS,
  }
end

local function refusal(limits, queue, row, most, size)
  return { 'QUEUE_FULL', queue, tonumber(most), row.waiting, size, limits.rates_known and row.rate or '' }
end

-- Whether jobs (queue → how many) are too many by now: nil, or {"QUEUE_FULL", queue, limit, waiting, size, rate}.
-- queue '': it is the limit of all together; rate: jobs per second that leave there, '' when it is not known.
local function too_many(limits, sizes)
  local total = 0
  for queue, size in pairs(sizes) do
    local row = queue_row(queue)
    local most = row.most or limits.most
    if most and row.waiting + size > tonumber(most) then
      return refusal(limits, queue, row, most, size)
    end
    total = total + size
  end
  local all = limits.all
  if all.most and all.waiting + total > tonumber(all.most) then
    return refusal(limits, '', all, all.most, total)
  end
  return nil
end

-- Count jobs of this call as waiting, for those that come behind them.
local function occupy(limits, sizes)
  for queue, size in pairs(sizes) do
    local row = queue_row(queue)
    row.waiting = row.waiting + size
    limits.all.waiting = limits.all.waiting + size
  end
end
