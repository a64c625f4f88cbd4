-- bulk_step: do one step of a bulk action: look at the next jobs, act on each that matches, and move the cursor.
-- uses: places queues steer
--
-- A step is one script, so any reaper can continue after another has died. The lease only saves Redis work: without it,
-- all reapers would try the same action at once.
--
-- ARGV[1]  id        of the action
-- ARGV[2]  reaper    name of the calling reaper
-- ARGV[3]  lease_ms  how long other reapers leave the action alone, ms
-- ARGV[4]  looks     most jobs to look at
-- ARGV[5]  limit     most jobs to act on
-- ARGV[6]  keep_ms   how long the action stays visible after its end, ms
--
-- Returns {"ACTED", looked, done}, {"BUSY"} if another reaper has the lease, or {"OVER"}

local id, reaper, lease_ms, looks, limit, keep_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local key = P .. 'action:' .. id

local action = {}
local row = redis.call('HGETALL', key) -- bound: the fields that bulk_create writes
for i = 1, #row, 2 do
  action[row[i]] = row[i + 1]
end
if action.state ~= 'running' then
  redis.call('ZREM', P .. 'actions:open', id)
  return { 'OVER' }
end
local left_ms = tonumber(action.leased_until or '0') - NOW
if action.reaper and action.reaper ~= reaper and left_ms > 0 and left_ms <= lease_ms then
  return { 'BUSY' }
end

local began = tonumber(action.created_at)
local source = redis.call('LINDEX', key .. ':sources', '0')
local by_change = source and string.find(source, '^queue:') or string.find(source or '', '^jobs:')
local highest = by_change and math.min(began, tonumber(action.finished_before or began))
  or source == 'due' and tonumber(action.upto) or math.huge

local statuses, tags, queues = {}, action.tags and cjson.decode(action.tags) or {}, {}
for status in string.gmatch(action.statuses, '%S+') do
  statuses[status] = true
end

-- Return the next ids of a sorted set by score, and the cursor of each.
local function next_by_score(zset)
  local score, member = PLACES.parse(action.cursor)
  if not score then
    score, member = action.finished_after and by_change and tonumber(action.finished_after) - 1 or -1, '~' -- after ids
  end
  local from = PLACES.rank_behind(zset, score, member)
  local found, ids, places = redis.call('ZRANGE', zset, int(from), int(from + looks - 1), 'WITHSCORES'), {}, {}
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) > highest then
      break
    end
    ids[#ids + 1] = found[i]
    places[#places + 1] = PLACES.text(found[i + 1], found[i])
  end
  return ids, places
end

local function next_by_id()
  local from = action.cursor and '(' .. action.cursor or '-'
  local ids = redis.call('ZRANGE', P .. 'jobs', from, '[' .. action.upto, 'BYLEX', 'LIMIT', '0', int(looks))
  return ids, ids
end

local function next_of_workflow(list)
  local from, upto = tonumber(action.cursor or 0), tonumber(action.upto)
  local ids, places = redis.call('LRANGE', list, int(from), int(math.min(from + looks, upto) - 1)), {}
  if from >= upto then
    return {}, {}
  end
  for i = 1, #ids do
    places[i] = int(from + i)
  end
  return ids, places
end

local function next_jobs()
  if source == 'jobs' then
    return next_by_id()
  elseif string.sub(source, 1, 9) == 'workflow:' then
    return next_of_workflow(P .. source)
  end
  return next_by_score(P .. source)
end

local function has_tags(job)
  local read_well, has = pcall(cjson.decode, job.tags or '[]')
  for _, wanted in ipairs(tags) do
    local found = false
    for _, tag in ipairs(read_well and has or {}) do
      found = found or tag == wanted
    end
    if not found then
      return false
    end
  end
  return true
end

-- Return whether a time of the job is at or after `<what>_after`, and before `<what>_before`.
local function is_within(job, what, field)
  local after, before = tonumber(action[what .. '_after'] or 0), tonumber(action[what .. '_before'] or math.huge)
  if after == 0 and before == math.huge then
    return true
  end
  local at = tonumber(job[field] or nil)
  return at ~= nil and at >= after and at < before
end

local function is_there_already(job)
  return action.action == 'move' and job.queue == (action.to_queue or job.queue)
    and job.priority == (action.to_priority or job.priority)
end

local SEARCHED = 100000 -- bytes of errors in one call, approximately: near matches everywhere make a search slow
local searched = 0

local function is_in_error(job)
  local error = job.error or ''
  searched = searched + #error
  return string.find(error, action.error, 1, true) ~= nil
end

local function matches(job)
  return statuses[job.status] and visible(job)
    and (action.queue == '' or job.queue == action.queue)
    and (action.workflow == '' or job.workflow == action.workflow)
    and not (action.action == 'cancel' and job.cancel_requested_at)
    and not (action.action == 'delete' and job.hooks and job.array) -- tasks are deleted with their array
    and (by_change or tonumber(job.created_at or 0) <= began)
    and (not action.name or job.name == action.name)
    and (not action.error or is_in_error(job))
    and is_within(job, 'created', 'created_at') and is_within(job, 'finished', 'finished_at')
    and (#tags == 0 or has_tags(job))
    and not is_there_already(job)
end

local counted = { looked = 0, matched = 0, done = 0, failed = 0 }

local function failed(job, why)
  counted.failed = counted.failed + 1
  if not action.first_error then
    action.first_error = job.id .. ': ' .. why
    redis.call('HSET', key, 'first_error', action.first_error)
  end
end

-- Apply the action to a job; returns whether the next step must start with the same job.
local function act(job)
  queues[job.queue] = true
  local well, done, why = pcall(STEER[action.action], job, action.to_queue or job.queue, action.to_priority or job.priority)
  if well and why == 'later' then
    return true
  end
  counted.matched = counted.matched + 1
  if not well then
    quarantine(job.id)
    failed(job, 'its keys are damaged')
  elseif done then
    counted.done = counted.done + 1
    queues[job.queue] = true
  else
    failed(job, why)
  end
  return false
end

local function finish_source()
  redis.call('LPOP', key .. ':sources')
  redis.call('HDEL', key, 'cursor')
end

local function finish_action()
  redis.call('HSET', key, 'state', 'done', 'finished_at', NOW_TEXT)
  redis.call('PEXPIRE', key, keep_ms)
  redis.call('ZREM', P .. 'actions:open', id)
end

if not source then
  finish_action()
  return { 'OVER' }
end
local ids, places = next_jobs()
local place
for i, job_id in ipairs(ids) do
  local job = read(job_id)
  if job and matches(job) then
    if action.dry_run == '1' then
      counted.matched = counted.matched + 1
    elseif act(job) then
      break
    end
  end
  counted.looked = counted.looked + 1
  place = places[i]
  if counted.done + counted.failed >= limit or searched >= SEARCHED then
    break
  end
end
flush()
for queue in pairs(queues) do
  redis.call('ZADD', P .. 'queues', '0', queue)
  QUEUES.forget_if_empty(queue)
end
redis.call('HSET', key, 'reaper', reaper, 'leased_until', int(NOW + lease_ms))
if place then
  redis.call('HSET', key, 'cursor', place)
end
for name, number in pairs(counted) do
  if number > 0 then
    redis.call('HINCRBY', key, name, int(number))
  end
end
if #ids == 0 then
  finish_source()
end
return { 'ACTED', counted.looked, counted.done }
