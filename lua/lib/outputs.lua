-- outputs: the stored output of attempts, a string per attempt; the job's `outputs` field lists `<fence>:<total>`.

local KEPT = 2 -- attempts whose output is kept
local HEAD = 131072 -- bytes from the beginning; what is stored behind them is the end

-- Note how much an attempt has written in all, and forget the outputs of older attempts.
local function note_total(key, fence, total)
  local outputs = redis.call('HGET', key, 'outputs') or ''
  local kept = {}
  for attempt, length in string.gmatch(outputs, '(%d+):(%d+)') do
    if attempt ~= fence then
      kept[#kept + 1] = attempt .. ':' .. length
    end
  end
  kept[#kept + 1] = fence .. ':' .. total
  while #kept > KEPT do
    redis.call('DEL', key .. ':output:' .. string.match(table.remove(kept, 1), '^%d+'))
  end
  redis.call('HSET', key, 'outputs', table.concat(kept, ' '))
end

-- Write `data` at its exact offset, so that a repeated write changes nothing.
local function write_output(id, fence, offset, total, data)
  local key = job_key(id)
  redis.call('SETRANGE', key .. ':output:' .. fence, offset, data)
  note_total(key, fence, total)
end

-- Have it seen that the last output is missing: only the beginning stays, and how much there was.
local function leave_out_output(id, fence, total)
  local key = job_key(id)
  local stored = key .. ':output:' .. fence
  if redis.call('STRLEN', stored) > HEAD then
    redis.call('SET', stored, redis.call('GETRANGE', stored, '0', int(HEAD - 1)))
  end
  note_total(key, fence, total)
end
