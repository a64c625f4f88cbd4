-- maintain_repair: find lost jobs and put them back. Reapers run this spot check all the time.
-- uses: formats jobs slots ends arrays workflows
--
-- It scans the keys of jobs, not an index, so it also finds a job that no index names. `workron doctor` finds all other
-- faults, and `workron doctor --rebuild` repairs them.
--
-- ARGV[1]  cursor  of SCAN, '0' to begin
-- ARGV[2]  number  keys to scan, approximately
--
-- Returns {"LOOKED", cursor, {id, code, detail, mended}, …}, an entry per fault; cursor '0': the scan is complete;
-- mended: 1 if this call repaired it

local cursor, number = ARGV[1], ARGV[2]
local SHORT = 1000 -- a longer list is only searched so far; a later scan searches it when it is shorter
local SHOWN = 200 -- most bytes of a detail: it may be anything
local STATUSES = { pending = true, scheduled = true, running = true }
for status in pairs(INDEXED) do
  STATUSES[status] = true
end
local found = {}

local function tell(id, code, detail, mended)
  found[#found + 1] = { id, code, string.sub(detail, 1, SHOWN), mended and 1 or 0 }
end

local long, queues_seen = {}, {} -- in this call: list → whether it is long; set of queues → queue → true

-- Whether a member is in a list. In a long list, it is taken to be there.
local function stands_in(list, member)
  if long[list] or redis.call('LPOS', list, member, 'MAXLEN', int(SHORT)) then
    return true
  end
  long[list] = redis.call('LLEN', list) > SHORT
  return long[list]
end

-- Add a job to an index that lacks it.
local function check_index(id, key, score)
  if not redis.call('ZSCORE', key, id) then
    index(key, id, score)
    tell(id, 'not-listed', key, true)
  end
end

-- Add a job's queue to a set of queues that lacks it.
local function check_listed(id, queue, key)
  queues_seen[key] = queues_seen[key] or {}
  if not (queues_seen[key][queue] or redis.call('ZSCORE', key, queue)) then
    index(key, queue, 0)
    tell(id, 'not-listed', key, true)
  end
  queues_seen[key][queue] = true
end

-- A pending job with a concurrency key has a queue position there. Only an admitted job is also in the pending list.
local function check_line(job, name, list)
  local waiting = SLOTS.waiting_of(name, job.queue)
  local place = tonumber(redis.call('ZSCORE', waiting, job.id) or '')
  if not place then
    SLOTS.join_line(job)
    tell(job.id, 'not-in-line', name, true)
  elseif place < 0 and not stands_in(list, job.id) then
    redis.call('ZADD', waiting, int(-place), job.id)
    count(queue_key(job.queue), 'held', 1)
    SLOTS.touched[name] = 'changed'
    tell(job.id, 'not-in-list', list, true)
  elseif place > 0 then -- it is held: a slot may have been lost
    SLOTS.touched[name] = SLOTS.touched[name] or 'on'
  end
end

local function check_pending(job)
  check_listed(job.id, job.queue, P .. 'queues:pending')
  local list = queue_key(job.queue) .. ':pending:' .. job.priority
  local name = has_hook(job.hooks, 'concurrency') and SLOTS.said_by(job.id).name
  if name then
    check_line(job, name, list)
  elseif not stands_in(list, job.id) then
    append(pushes, list, job.id)
    hints[job.queue] = true
    tell(job.id, 'not-in-list', list, true)
  end
end

-- Treat a running job without a lease as if the lease had expired: the reaper sees whether its worker is alive.
local function check_running(job)
  if not redis.call('ZSCORE', P .. 'leases', job.id) then
    index(P .. 'leases', job.id, NOW_TEXT)
    tell(job.id, 'no-lease', job.worker or '?', true)
  end
end

-- A due time after a duration (`wait_ms`; nil: at an absolute time) can't be later than that from now. A later one was
-- set while the server's clock was ahead.
local function check_due(job, member, field, at, wait_ms)
  if wait_ms and at > NOW + wait_ms then
    at = NOW + wait_ms
    redis.call('HSET', job_key(job.id), field, int(at))
  end
  local score = tonumber(redis.call('ZSCORE', P .. 'due', member) or '')
  if not score or score > at then
    index(P .. 'due', member, at)
    tell(job.id, 'not-due', member, true)
  end
end

-- Check the timers that are set and count a duration by the server's clock.
local function check_timers(job)
  for _, kind in ipairs({ 'deadline', 'expires' }) do
    local member, wait_ms = FORMATS.timer(kind, job.id), tonumber(job[kind .. '_ms'] or '')
    if wait_ms and redis.call('ZSCORE', P .. 'due', member) then
      check_due(job, member, kind .. '_at', job[kind .. '_at'] or NOW, wait_ms)
    end
  end
end

-- Put a walk back that `propagate` lacks.
local function check_walk(id, entry)
  if not stands_in(P .. 'propagate', entry) then
    redis.call('RPUSH', P .. 'propagate', entry)
    tell(id, 'stuck-walk', entry, true)
  end
end

-- Check that the followers of an array will be notified of its ended tasks, and that it does not itself wait for an
-- array that has ended.
local function check_followers(job)
  if redis.call('EXISTS', ARRAYS.key(job.id) .. ':ended') == 1 then
    check_walk(job.id, 'follow:' .. job.id)
  end
  if not TERMINAL[job.status] and FOLLOWS.has_forgotten(ARRAYS.row(job.id)) then
    FOLLOWS.all(job.id)
    tell(job.id, 'stuck-walk', ARRAYS.key(job.id), true)
  end
end

local function check_walks(job)
  if job.children and job.edge_cursor then
    check_walk(job.id, job.id)
  end
  if ENDS.is_cascading(job) then
    check_walk(job.id, 'cascade:' .. job.id)
  end
  if job.workflow and redis.call('HEXISTS', WORKFLOWS.key(job.workflow), 'stop_at') == 1 then
    check_walk(job.id, 'workflow:' .. job.workflow)
  end
  if job.workflow and job.hooks and job.final and WORKFLOWS.final_may_start(job.workflow) then
    WORKFLOWS.final_may_start(job.workflow, true)
    tell(job.id, 'unsettled', 'all others of its workflow have ended', true)
  end
  if ARRAYS.is_array(job) then
    check_followers(job)
    if redis.call('HEXISTS', ARRAYS.key(job.id), 'walk') == 1 and not redis.call('ZSCORE', P .. 'arrays', job.id) then
      ARRAYS.work_on(job.id)
      tell(job.id, 'stuck-walk', ARRAYS.key(job.id), true)
    end
    if not TERMINAL[job.status] then
      ARRAYS.touch(job.id) -- bring it to the state that its tasks require
    end
  end
end

local function check(id)
  local job = read(id)
  if not (job and STATUSES[job.status]) or not string.find(job.queue, '^[%w_.%-]+$') or not string.find(job.priority, '^[1-9]$') then
    local kind = redis.call('TYPE', job_key(id)).ok
    quarantine(id)
    return tell(id, 'damaged', kind == 'hash' and 'its status is ' .. (job and job.status or 'missing') or 'it is a ' .. kind)
  elseif job.batch then
    return
  end
  check_index(id, P .. 'jobs', 0)
  check_listed(id, job.queue, P .. 'queues')
  if INDEXED[job.status] then
    local at = job.finished_at or job.created_at or NOW_TEXT
    check_index(id, queue_key(job.queue) .. ':' .. job.status, at)
    check_index(id, P .. 'jobs:' .. job.status, at)
  end
  check_walks(job)
  if has_hook(job.hooks, 'timers') and not TERMINAL[job.status] then
    check_timers(job)
  end
  if job.status == 'pending' then
    check_pending(job)
  elseif job.status == 'running' then
    check_running(job)
  elseif job.status == 'scheduled' then
    check_due(job, id, 'run_at', job.run_at or NOW, tonumber(job.wait_ms or ''))
  end
end

local page = redis.call('SCAN', cursor, 'MATCH', P .. 'job:' .. string.rep('?', 22), 'COUNT', number)
for _, key in ipairs(page[2]) do
  local id = string.sub(key, #JOB_PREFIX + 1)
  local ok, error = pcall(check, id)
  if not ok then -- a key of the wrong type
    tell(id, 'unreadable', tostring(type(error) == 'table' and error.err or error))
  end
end
flush()
return { 'LOOKED', page[1], unpack(found) }
