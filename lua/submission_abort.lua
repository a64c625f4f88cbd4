-- submission_abort: abort a large submission that was never opened, and delete its stored jobs in steps.
-- uses: formats queues unique
--
-- ARGV[1]  batch    id of the submission
-- ARGV[2]  idle_ms  abort only if its last call was at least this long ago, ms; 0: abort now
--
-- Returns {"ABORTED"} if nothing is left of it, {"MORE"} after each chunk but the last, or {"OPEN"} if it must not be
-- aborted, or not yet

local batch, idle_ms = ARGV[1], tonumber(ARGV[2])
local batch_key = P .. 'batch:' .. batch

local state = redis.call('HGET', batch_key, 'state')
local last = tonumber(redis.call('ZSCORE', P .. 'batches', batch) or 0)
if last > NOW then -- the last call came while the server's clock was ahead: it counts as a call of now
  redis.call('ZADD', P .. 'batches', 'XX', NOW_TEXT, batch)
  last = NOW
end
if state == 'staging' and NOW - last < idle_ms then
  return { 'OPEN' }
elseif state ~= 'staging' and state ~= 'aborted' and redis.call('EXISTS', batch_key) == 1 then
  return { 'OPEN' } -- or the state is damaged: it may have been opened
end
if state == 'staging' then
  redis.call('HSET', batch_key, 'state', 'aborted')
end

-- Give back the unique key that a job was staged with.
local function free_staged(id)
  local row = redis.call('HMGET', job_key(id), 'unique', 'run')
  local unique = UNIQUE.parse(row[1])
  if unique then
    UNIQUE.free(unique, id, row[2] or '1')
  end
end

for _, run in ipairs(FORMATS.read_alike(redis.call('LPOP', batch_key .. ':ids'))) do
  for _, id in ipairs(run.ids) do
    if run.status == '' then -- jobs with a unique key are among these
      free_staged(id)
    end
    redis.call('UNLINK', job_key(id), job_key(id) .. ':parents', job_key(id) .. ':children',
      P .. 'array:' .. id .. ':values')
  end
end
-- No job of it was admitted, so all its reserved room is free again.
local reserved = FORMATS.read_rooms(redis.call('LPOP', batch_key .. ':reserved'))
for _, room in ipairs(reserved) do
  count(queue_key(room.queue), 'reserved', -room.number)
end
flush()
for _, room in ipairs(reserved) do
  QUEUES.forget_if_empty(room.queue)
end
if redis.call('EXISTS', batch_key .. ':ids', batch_key .. ':reserved') > 0 then
  return { 'MORE' }
end
-- Keep the state for an hour: a delayed chunk must not begin the batch again.
redis.call('PEXPIRE', batch_key, 3600000)
redis.call('ZREM', P .. 'batches', batch)
if state then -- otherwise it was admitted meanwhile, and a repeated call still needs this key
  redis.call('UNLINK', P .. 'returned:' .. batch)
end
return { 'ABORTED' }
