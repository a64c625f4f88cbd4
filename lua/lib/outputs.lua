-- outputs: the stored output of attempts, a string per attempt. The job's field `outputs` lists `<fence>:<total>`.
-- uses: formats

local OUTPUTS = { HEAD = 131072 } -- bytes from the beginning; the rest of what is stored is the end of the output

do

local KEPT = 2 -- attempts with stored output

-- Record how much an attempt has written in total, and delete the outputs of older attempts.
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

-- Write `data` at its exact offset: a repeated write changes nothing.
function OUTPUTS.write(id, fence, offset, total, data)
  local key = job_key(id)
  redis.call('SETRANGE', key .. ':output:' .. fence, offset, data)
  note_total(key, fence, total)
end

-- Drop the end of the output: only the beginning and the total size stay, which shows that the end is missing.
function OUTPUTS.leave_out(id, fence, total)
  local key = job_key(id)
  local stored = key .. ':output:' .. fence
  if redis.call('STRLEN', stored) > OUTPUTS.HEAD then
    redis.call('SET', stored, redis.call('GETRANGE', stored, '0', int(OUTPUTS.HEAD - 1)))
  end
  note_total(key, fence, total)
end

end
