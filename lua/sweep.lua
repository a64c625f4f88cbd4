-- sweep: delete finished jobs whose retention has passed, oldest first.
-- uses: core queues
--
-- A job stays while its edges are not all visited, and while its workflow has unfinished jobs. The caller goes on
-- behind those with `skip`, so that they do not hold up the others.
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

local function unfinished(workflow)
  local counts_now = redis.call('HMGET', P .. 'workflow:' .. workflow, 'size', 'done', 'failed', 'cancelled', 'skipped')
  local ended = 0
  for i = 2, 5 do
    ended = ended + tonumber(counts_now[i] or 0)
  end
  return counts_now[1] and ended < tonumber(counts_now[1])
end

-- A workflow goes with its last job.
local function leave_workflow(id, workflow)
  local key = P .. 'workflow:' .. workflow
  if redis.call('HINCRBY', key, 'swept', '1') >= tonumber(redis.call('HGET', key, 'size') or 0) then
    redis.call('UNLINK', key, key .. ':jobs')
  end
end

local function delete(job)
  local key = job_key(job.id)
  local gone = { key, key .. ':parents', key .. ':children', key .. ':heartbeat' }
  if job.holds and string.find(job.holds, 'A', 1, true) then
    for _, part in ipairs({ '', ':values', ':skip', ':turns' }) do
      gone[#gone + 1] = P .. 'array:' .. job.id .. part
    end
  end
  local outputs = redis.call('HGET', key, 'outputs') or ''
  for fence in string.gmatch(outputs, '(%d+):%d+') do
    gone[#gone + 1] = key .. ':output:' .. fence
  end
  redis.call('UNLINK', unpack(gone))
  index(zset, job.id, false)
  index(P .. 'jobs', job.id, false)
  count(queue_key(queue), status, -1)
  count(queue_key(queue), 'deleted', 1)
  if job.workflow then
    leave_workflow(job.id, job.workflow)
  end
end

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
  elseif job.edge_cursor or job.workflow and unfinished(job.workflow) then
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
