-- attempt_output: store what running attempts have written since the last call.
-- uses: outputs unfenced
--
-- ARGV[1..]  patches  id, fence (or `safe`, `always`: see lib/unfenced), offset of the data in the stored output
--                     (bytes, '' for no output), total written so far (bytes), data, progress (number or
--                     text, '' for none)
--
-- Returns {"OUTPUT", "stored" | "lost" | "full", …} in the order of `patches`

local full = redis.call('HGET', KEYS[1], 'full')

local function store(id, fence, offset, total, data, progress)
  fence = UNFENCED.meant_fence(id, fence)
  local row = redis.call('HMGET', job_key(id), 'status', 'fence')
  if row[1] ~= 'running' or row[2] ~= fence then
    return 'lost'
  end
  if full then
    return 'full'
  end
  if offset ~= '' then
    OUTPUTS.write(id, fence, offset, total, data)
  end
  if progress ~= '' then
    redis.call('HSET', job_key(id), 'progress', progress)
  end
  append(moves, 'output', id)
  return 'stored'
end

local answer = { 'OUTPUT' }
for at = 1, #ARGV, 6 do
  answer[#answer + 1] = UNFENCED.spare_others(ARGV[at], 'lost', store, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3],
    ARGV[at + 4], ARGV[at + 5])
end
flush()
return answer
