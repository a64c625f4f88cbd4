-- output: store what running attempts have written since the last call.
-- uses: core outputs
--
-- ARGV[1..]  patches  id, fence, offset of the data in what is stored (bytes), total written so far (bytes), data
--
-- Returns {"OUTPUT", "stored" | "lost" | "full", …} in the order of `patches`

local full = redis.call('HGET', KEYS[1], 'full')

local function store(id, fence, offset, total, data)
  local row = redis.call('HMGET', job_key(id), 'status', 'fence')
  if row[1] ~= 'running' or row[2] ~= fence then
    return 'lost'
  end
  if full then
    return 'full'
  end
  write_output(id, fence, offset, total, data)
  append(moves, 'output', id)
  return 'stored'
end

local answer = { 'OUTPUT' }
for at = 1, #ARGV, 5 do
  answer[#answer + 1] = store(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
end
flush()
return answer
