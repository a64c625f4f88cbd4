-- job_output: read what the attempts of a job have written after a position.
-- uses: formats outputs
--
-- ARGV[1]  id      of the job
-- ARGV[2]  fence   of the position's attempt; 0: before the first stored attempt; '': the latest attempt
-- ARGV[3]  offset  bytes of that attempt's output to skip
--
-- Returns {"OUTPUT", status, fence, total, size, data} of the first attempt that has written more, else of the last
-- one; fence '': there is no attempt; total: bytes that it has written; size: bytes of these that are stored; data: the
-- end of the stored output, with everything after the position
-- or {"UNKNOWN"}

local id, fence, offset = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local job = read(id)
if not visible(job) then
  return { 'UNKNOWN' }
end

local found, total, from
for _, attempt in ipairs(FORMATS.read_outputs(redis.call('HGET', job_key(id), 'outputs'))) do
  local number = tonumber(attempt.fence)
  if not fence or number >= fence then
    found, total, from = attempt.fence, tonumber(attempt.total), number == fence and offset or 0
    if fence and total > from then
      break
    end
  end
end
if not found then
  return { 'OUTPUT', job.status, '', 0, 0, '' }
end
local key = job_key(id) .. ':output:' .. found
local size = redis.call('STRLEN', key)
if total > size then -- its middle is cut: the data after the head moves
  from = math.min(from, OUTPUTS.HEAD)
end
return { 'OUTPUT', job.status, found, total, size, redis.call('GETRANGE', key, int(from), '-1') }
