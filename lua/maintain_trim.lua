-- maintain_trim: compact a pending list: drop ids of jobs that no longer wait (cancelled, deleted).
--
-- ARGV[1]  queue     name of the queue
-- ARGV[2]  priority  1..9
-- ARGV[3]  skip      position in the list to start at
-- ARGV[4]  limit     most ids to look at, 1..500
--
-- Returns {"TRIMMED", next, dropped}; next: the position to continue at, -1 at the end of the list

local queue, priority, skip, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local list = queue_key(queue) .. ':pending:' .. priority
local dropped = 0

local ids = redis.call('LRANGE', list, int(skip), int(skip + limit - 1))
for i, id in ipairs(ids) do
  local row = redis.call('HMGET', job_key(id), 'status', 'queue', 'priority')
  if row[1] ~= 'pending' or (row[2] or 'default') ~= queue or (row[3] or '5') ~= priority then
    redis.call('LSET', list, int(skip + i - 1), '')
    dropped = dropped + 1
  end
end
if dropped > 0 then
  redis.call('LREM', list, int(dropped), '')
end
return { 'TRIMMED', #ids < limit and -1 or skip + #ids - dropped, dropped }
