-- outputs: the stored output of attempts, a string per attempt; the job's `outputs` field lists `<fence>:<total>`.
-- uses: formats

local OUTPUTS = { HEAD = 131072 } -- bytes from the beginning; what is stored behind them is the end

do

local KEPT = 2 -- attempts whose output is kept

-- Note how much an attempt has written in all, and forget the outputs of older attempts.
local function note_total(key, fence, total)
  local kept = {}
  for _, attempt in ipairs(FORMATS.read_outputs(redis.call('HGET', key, 'outputs'))) do
    if attempt.fence ~= fence then
      kept[#kept + 1] = attempt
    end
  end
  kept[#kept + 1] = { fence = fence, total = total }
  while #kept > KEPT do
    redis.call('DEL', key .. ':output:' .. table.remove(kept, 1).fence)
  end
  redis.call('HSET', key, 'outputs', FORMATS.outputs(kept))
end

-- Write `data` at its exact offset, so that a repeated write changes nothing.
function OUTPUTS.write(id, fence, offset, total, data)
  local key = job_key(id)
  redis.call('SETRANGE', key .. ':output:' .. fence, offset, data)
  note_total(key, fence, total)
end

-- Have it seen that the last output is missing: only the beginning stays, and how much there was.
function OUTPUTS.leave_out(id, fence, total)
  local key = job_key(id)
  local stored = key .. ':output:' .. fence
  if redis.call('STRLEN', stored) > OUTPUTS.HEAD then
    redis.call('SET', stored, redis.call('GETRANGE', stored, '0', int(OUTPUTS.HEAD - 1)))
  end
  note_total(key, fence, total)
end

end
