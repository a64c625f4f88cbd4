-- submission_abort: give up a large submission that was never opened, and delete what was stored of it, step by step.
-- uses: formats queues unique
--
-- ARGV[1]  batch    id of the submission
-- ARGV[2]  idle_ms  only when its last call is at least so long ago, ms; 0: now
--
-- Returns {"ABORTED"} when nothing is left of it, {"MORE"} after each chunk but the last, or {"OPEN"} when it must not be given up (any more)

local batch, idle_ms = ARGV[1], tonumber(ARGV[2])
local batch_key = P .. 'batch:' .. batch

local state = redis.call('HGET', batch_key, 'state')
local last = tonumber(redis.call('ZSCORE', P .. 'batches', batch) or 0)
if last > NOW then -- its last call came while the server's clock was ahead: it counts as one of now
  redis.call('ZADD', P .. 'batches', 'XX', NOW_TEXT, batch)
  last = NOW
end
if state == 'staging' and NOW - last < idle_ms then
  return { 'OPEN' }
elseif state ~= 'staging' and state ~= 'aborted' and redis.call('EXISTS', batch_key) == 1 then
  return { 'OPEN' } -- or damaged: it may have been opened
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
    if run.status == '' then -- those that hold something are among these
      free_staged(id)
    end
    redis.call('UNLINK', job_key(id), job_key(id) .. ':parents', job_key(id) .. ':children',
      P .. 'array:' .. id .. ':values')
  end
end
-- Nothing of it was admitted: all the room that it had is free again.
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
-- The state stays for a while: a chunk that was delayed must not begin the batch again.
redis.call('PEXPIRE', batch_key, 3600000)
redis.call('ZREM', P .. 'batches', batch)
if state then -- else it was admitted meanwhile, and who asks again is told of it
  redis.call('UNLINK', P .. 'returned:' .. batch)
end
return { 'ABORTED' }
