-- maintain_repair: find jobs that were lost on the way and put them back. Reapers do so all the time, without being asked.
-- uses: formats jobs slots arrays workflows
--
-- It goes over the keys of jobs, not over an index: a job that stands in no index is found, too. What else can be wrong,
-- `workron doctor` finds, and `workron doctor --rebuild` mends.
--
-- ARGV[1]  cursor  of SCAN, '0' to begin
-- ARGV[2]  number  keys to go over, about
--
-- Returns {"LOOKED", cursor, {id, code, detail, mended}, …}, an entry per fault; cursor '0': all were looked at; mended: 1 when
-- it was put right by this call

local cursor, number = ARGV[1], ARGV[2]
local SHORT = 1000 -- a longer list is not searched: it is looked at again when it is shorter
local SHOWN = 200 -- so many bytes of what was found: it may be anything
local STATUSES = { pending = true, scheduled = true, running = true }
for status in pairs(INDEXED) do
  STATUSES[status] = true
end
local found = {}

local function tell(id, code, detail, mended)
  found[#found + 1] = { id, code, string.sub(detail, 1, SHOWN), mended and 1 or 0 }
end

local function stands_in(list, member)
  return redis.call('LLEN', list) > SHORT or redis.call('LPOS', list, member)
end

-- Put a job into an index in which it is missing.
local function check_index(id, key, score)
  if not redis.call('ZSCORE', key, id) then
    index(key, id, score)
    tell(id, 'not-listed', key, true)
  end
end

-- Put a job's queue among those in which it is missing.
local function check_listed(id, queue, key)
  if not redis.call('ZSCORE', key, queue) then
    index(key, queue, 0)
    tell(id, 'not-listed', key, true)
  end
end

-- A job of a concurrency key stands in the line of that; only if it was let go, also in the list.
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
  elseif place > 0 then -- it is held: perhaps a slot was lost
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

-- Without a lease it is as one whose lease is over: the reaper sees whether its worker is alive.
local function check_running(job)
  if not redis.call('ZSCORE', P .. 'leases', job.id) then
    index(P .. 'leases', job.id, NOW_TEXT)
    tell(job.id, 'no-lease', job.worker or '?', true)
  end
end

-- What is due after a duration (`wait_ms`; nil: at a given moment) can't be due later than that: it was
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

-- Timers that are set, and count from a moment of the server's clock.
local function check_timers(job)
  for _, kind in ipairs({ 'deadline', 'expires' }) do
    local member, wait_ms = FORMATS.timer(kind, job.id), tonumber(job[kind .. '_ms'] or '')
    if wait_ms and redis.call('ZSCORE', P .. 'due', member) then
      check_due(job, member, kind .. '_at', job[kind .. '_at'] or NOW, wait_ms)
    end
  end
end

-- A walk that nobody would go on with.
local function check_walk(id, entry)
  if not stands_in(P .. 'propagate', entry) then
    redis.call('RPUSH', P .. 'propagate', entry)
    tell(id, 'stuck-walk', entry, true)
  end
end

-- An array of which followers are to be told what has ended, and one that waits although all that it follows has ended.
local function check_followers(job)
  if redis.call('EXISTS', array_key(job.id) .. ':ended') == 1 then
    check_walk(job.id, 'follow:' .. job.id)
  end
  if not TERMINAL[job.status] and FOLLOWS.has_forgotten(array_row(job.id)) then
    FOLLOWS.all(job.id)
    tell(job.id, 'stuck-walk', array_key(job.id), true)
  end
end

local function check_walks(job)
  if job.children and job.edge_cursor then
    check_walk(job.id, job.id)
  end
  if (job.children or job.hooks) and job.cascade_at then
    check_walk(job.id, 'cascade:' .. job.id)
  end
  if job.workflow and redis.call('HEXISTS', workflow_key(job.workflow), 'stop_at') == 1 then
    check_walk(job.id, 'workflow:' .. job.workflow)
  end
  if job.workflow and job.hooks and job.final and final_may_start(job.workflow) then
    final_may_start(job.workflow, true)
    tell(job.id, 'unsettled', 'all others of its workflow have ended', true)
  end
  if is_array(job) then
    check_followers(job)
    if redis.call('HEXISTS', array_key(job.id), 'walk') == 1 and not redis.call('ZSCORE', P .. 'arrays', job.id) then
      work_on_array(job.id)
      tell(job.id, 'stuck-walk', array_key(job.id), true)
    end
    if not TERMINAL[job.status] then
      touch(job.id) -- it is brought to what its tasks demand
    end
  end
end

local function check(id)
  local kind = redis.call('TYPE', job_key(id)).ok
  local job = kind == 'hash' and read(id)
  if not (job and STATUSES[job.status]) or not string.find(job.queue, '^[%w_.%-]+$') or not string.find(job.priority, '^[1-9]$') then
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
