-- sweep: delete finished jobs whose retention has passed, oldest first.
-- uses: core queues deletion
--
-- A job stays while its edges are not all visited, or a cancel is to go on from it to its dependents, and while its workflow
-- has unfinished jobs; a task that is not done stays as long as its array. The caller goes on behind those with `skip`, so
-- that they do not hold up the others.
--
-- ARGV[1]  queue      name of the queue
-- ARGV[2]  status     done, failed, cancelled or skipped
-- ARGV[3]  keep_ms    retention, ms
-- ARGV[4]  skip       number of the oldest to pass over
-- ARGV[5]  limit      most jobs to look at, 1..100
--
-- Returns {"SWEPT", deleted, kept, more}; more: 1 when there may be others whose time has passed

local queue, status, keep_ms, skip, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local zset = queue_key(queue) .. ':' .. status
local deleted, kept = 0, 0

-- The oldest behind those passed over, by rank: `LIMIT` would walk over them one by one.
local function oldest()
  local first = tonumber(skip)
  local members = redis.call('ZRANGE', zset, int(first), int(first + limit - 1), 'WITHSCORES')
  local ids = {}
  for i = 1, #members, 2 do
    if tonumber(members[i + 1]) <= NOW - keep_ms then
      ids[#ids + 1] = members[i]
    end
  end
  return ids
end

local ids = oldest()
for _, id in ipairs(ids) do
  local job = read(id)
  if not job or job.status ~= status then
    index(zset, id, false)
    deleted = deleted + 1
  elseif is_needed(job) then
    kept = kept + 1
  else
    delete(job)
    deleted = deleted + 1
  end
end
flush()
if deleted > 0 then
  forget_if_empty(queue)
end
return { 'SWEPT', deleted, kept, #ids == limit and 1 or 0 }
