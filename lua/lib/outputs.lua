-- outputs: the stored output of attempts, a string per attempt; the job's `outputs` field lists `<fence>:<total>`.

local KEPT = 2 -- attempts whose output is kept

-- Write `data` at its exact offset, so that a repeated write changes nothing.
local function write_output(id, fence, offset, total, data)
  local key = job_key(id)
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
  redis.call('SETRANGE', key .. ':output:' .. fence, offset, data)
  redis.call('HSET', key, 'outputs', table.concat(kept, ' '))
end
