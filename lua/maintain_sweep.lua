-- maintain_sweep: delete finished jobs of all queues whose retention has passed, oldest first.
-- uses: places queues deletion
--
-- A job is kept while it has edges to visit, while a cancel must still cascade from it, and while its workflow has
-- unfinished jobs. A task that is not done is kept as long as its array, and an array as long as an array that follows
-- it. The caller continues after the kept jobs, so that they do not block the others.
--
-- ARGV[1]  status     done, failed, cancelled or skipped
-- ARGV[2]  keep_ms    retention, ms
-- ARGV[3]  place      where to begin: after `<ms> <id>`, '' at the oldest job
-- ARGV[4]  limit      most jobs to delete
-- ARGV[5]  looks      most jobs to look at
--
-- Returns {"SWEPT", deleted, more, place}; more: 1 if the retention of others may have passed; place: where to continue

local status, keep_ms, place, limit, looks = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local zset = P .. 'jobs:' .. status
local deleted, queues, going_on = 0, {}, {}

-- Return whether a job is kept because its workflow is unfinished. For most kept jobs, nothing else is read.
local function is_part(id)
  local row = redis.pcall('HMGET', job_key(id), 'status', 'workflow')
  local workflow = row[1] == status and row[2]
  if workflow and going_on[workflow] == nil then
    going_on[workflow] = DELETION.unfinished(workflow) or false
  end
  return workflow and going_on[workflow]
end

local function sweep(id)
  if is_part(id) then
    return
  end
  local job = read(id)
  if not job then
    index(zset, id, false)
    deleted = deleted + 1
  elseif job.status ~= status then
    index_status(job, status, false)
    deleted = deleted + 1
  elseif not (DELETION.is_needed(job) or DELETION.has_followers(job)) then
    DELETION.delete(job)
    queues[job.queue] = true
    deleted = deleted + 1
  end
end

local score, member = PLACES.parse(place)
local from = score and PLACES.rank_behind(zset, score, member) or 0
local oldest = redis.call('ZRANGE', zset, int(from), int(from + looks - 1), 'WITHSCORES')
local more, last = #oldest == 2 * looks, nil
for i = 1, #oldest, 2 do
  if tonumber(oldest[i + 1]) > NOW - keep_ms then
    more = false
    break
  elseif deleted == limit then
    more = true
    break
  end
  last = i
  if not pcall(sweep, oldest[i]) then
    quarantine(oldest[i])
  end
end
if last then
  place = PLACES.text(oldest[last + 1], oldest[last])
end
flush()
for queue in pairs(queues) do
  QUEUES.forget_if_empty(queue)
end
return { 'SWEPT', deleted, more and 1 or 0, place }
