-- core: key prefix, clock, reading a job, and the changes of shared keys that are written once per call.
--
-- A script changes job hashes at once. It collects changes of shared keys (counts, indexes, lists, events) until
-- `flush`: one command per key and call instead of one per job.

local P = string.sub(KEYS[1], 1, -5) -- KEYS[1] is <prefix>meta
local TIME = redis.call('TIME')
local NOW = tonumber(TIME[1]) * 1000 + math.floor(tonumber(TIME[2]) / 1000)

local TERMINAL = { done = true, failed = true, cancelled = true, skipped = true }
local INDEXED = { blocked = true, done = true, failed = true, cancelled = true, skipped = true }
local WAITING = { pending = true, scheduled = true, blocked = true, reserved = true } -- fields of a queue: see limits
-- These fields of a job are read at once. The others are read on first use: see JOB.
local FIRST = { 'status', 'fence', 'queue', 'workflow', 'children', 'batch', 'cancel_requested_at', 'reason', 'hooks' }
-- Fields that all tasks of an array share.
local SHARED = { max_attempts = true, timeout_ms = true, retry = true, depends_on = true, created_at = true, name = true, tags = true }
local NUMBERS = { -- field → its default
  attempts = 0, max_attempts = 3, run = 1, broken = 0, run_at = false, edge_cursor = false, timeout_ms = false,
  started_at = false, deadline_at = false, expires_at = false, expired_at = false,
}

-- Numbers go to Redis as digits only: `..` and tostring lose precision beyond 14 digits and may print an exponent.
local function int(number)
  return string.format('%.0f', number)
end

local NOW_TEXT = string.format('%.0f', NOW)
local JOB_PREFIX = P .. 'job:'
local WORKER_SHOWN_MS = 3600000 -- a worker that has been silent for this long is forgotten

local function job_key(id)
  return JOB_PREFIX .. id
end

local queue_keys, queue_of = {}, {} -- name → key; key → name

local function queue_key(queue)
  local key = queue_keys[queue]
  if not key then
    key = P .. 'queue:' .. queue
    queue_keys[queue], queue_of[key] = key, queue
  end
  return key
end

-- The other fields are read on first use. The value is the one at that moment, this script's own writes included.
local JOB = {}

function JOB.__index(job, name)
  local value = redis.call('HGET', JOB_PREFIX .. job.id, name)
  if not value and SHARED[name] and job.hooks and job.array then -- a task: read its array
    value = redis.call('HGET', JOB_PREFIX .. job.array, name)
  end
  if NUMBERS[name] ~= nil then
    value = value and tonumber(value) or NUMBERS[name]
  elseif name == 'priority' then
    value = value or '5'
  end
  job[name] = value
  return value
end

-- Read a job; nil if there is none, or if its key is damaged: the rest of a batch continues.
local function read(id)
  local row = redis.pcall('HMGET', job_key(id), unpack(FIRST))
  if not row[1] then
    return nil
  end
  return setmetatable({
    id = id,
    status = row[1],
    fence = row[2],
    queue = row[3] or 'default',
    workflow = row[4],
    children = row[5],
    batch = row[6],
    cancel_requested_at = row[7] and tonumber(row[7]),
    reason = row[8],
    hooks = row[9],
  }, JOB)
end

-- Record a job with a damaged key and skip it; the others are handled. An entry without an id is only skipped.
local function quarantine(id)
  return id and redis.pcall('SADD', P .. 'quarantine', id)
end

-- Whether other jobs may see a job. A submission in chunks is invisible until it is open.
local function visible(job)
  return job and (not job.batch or redis.call('HGET', P .. 'batch:' .. job.batch, 'state') == 'open')
end

local meta -- what every claim reads: the last fence, and the queues with a gate

local function meta_now()
  if not meta then
    meta = redis.call('HMGET', KEYS[1], 'fence', 'gated')
  end
  return meta
end

-- Whether a queue has a gate (see gates).
local function is_gated(queue)
  local gated = meta_now()[2]
  if gated == '*' then
    return redis.call('SISMEMBER', P .. 'gates', queue) == 1
  end
  return gated and string.find(' ' .. gated .. ' ', ' ' .. queue .. ' ', 1, true)
end

local counts = {} -- hash key → field → change
local indexes = {} -- zset key → member → score (a number or digits), or false to remove
local pushes, fronts = {}, {} -- list key → ids to add at the tail; at the head
local hints, keys_gone = {}, {} -- queue → true; keys to delete
local moves, kept_back = {}, {} -- new status → ids; id → true: pending, but in no list (see slots)
local soonest_queue, soonest_at -- the earliest job that became scheduled in this call

local function count(key, field, change)
  local fields = counts[key] or {}
  counts[key] = fields
  fields[field] = (fields[field] or 0) + change
end

local function count_job(job, status, change)
  count(queue_key(job.queue), status, change)
  if job.workflow then
    count(P .. 'workflow:' .. job.workflow, status, change)
  end
end

local function index(key, member, score)
  local members = indexes[key] or {}
  indexes[key] = members
  members[member] = score
end

-- Add the job to the indexes of a status (its queue's and the global one), or remove it if `score` is false.
local function index_status(job, status, score)
  index(queue_key(job.queue) .. ':' .. status, job.id, score)
  index(P .. 'jobs:' .. status, job.id, score)
end

local function append(lists, key, id)
  local list = lists[key] or {}
  lists[key] = list
  list[#list + 1] = id
end

-- Remove the job from the index of its status. A pending id stays in its list: the claim drops it.
local function leave(job)
  if job.batch then
    return -- not admitted yet: it is in no index
  end
  local from = job.status
  count_job(job, from, -1)
  if INDEXED[from] then
    index_status(job, from, false)
  elseif from == 'scheduled' then
    index(P .. 'due', job.id, false)
  elseif from == 'running' then
    index(P .. 'leases', job.id, false)
    keys_gone[#keys_gone + 1] = job_key(job.id) .. ':heartbeat'
  end
end

-- Add the job to the index of a status. The caller writes the hash.
local function enter(job, to, at_front)
  job.status = to
  count_job(job, to, 1)
  append(moves, to, job.id)
  if INDEXED[to] then
    index_status(job, to, NOW_TEXT)
  elseif to == 'scheduled' then
    index(P .. 'due', job.id, job.run_at)
    if not soonest_at or job.run_at < soonest_at then
      soonest_queue, soonest_at = job.queue, job.run_at
    end
  elseif not kept_back[job.id] then -- it is pending: claims start jobs without `enter`
    append(at_front and fronts or pushes, queue_key(job.queue) .. ':pending:' .. job.priority, job.id)
    hints[job.queue] = true
  end
end

-- A job's field `hooks` names the rare features that it uses. HOOKS has a function per word: it gets the job, its
-- status and its next status, and may return another next status. ORDER is their order: hooks that may end a job or
-- keep it blocked run before hooks that set timers or wait for a slot.
local ORDER = { 'unique', 'workflow', 'timers', 'array', 'task', 'concurrency' }
local HOOKS = {}
local AFTER_FLUSH = {} -- called after all is written; each returns true if it moved more jobs

-- Whether a job has a hook. No word is part of another word.
local function has_hook(hooks, word)
  return hooks and string.find(hooks, word, 1, true)
end

local function call_hooks(job, from, to)
  for _, word in ipairs(ORDER) do
    if HOOKS[word] and has_hook(job.hooks, word) then
      to = HOOKS[word](job, from, to) or to
    end
  end
  return to
end

-- Enter a new job.
local function arrive(job, status)
  enter(job, job.hooks and call_hooks(job, nil, status) or status)
end

local function move(job, to, at_front)
  to = job.hooks and call_hooks(job, job.status, to) or to
  leave(job)
  enter(job, to, at_front)
end

-- Return the first status of a job without open dependencies.
local function ready_state(job)
  return job.run_at and job.run_at > NOW and 'scheduled' or 'pending'
end

-- Unpark the claim request of a worker (see claims). `queues` are the queues in which it is parked.
local function unpark(worker, queues)
  redis.call('HSET', P .. 'worker:' .. worker .. ':claim', 'parked', '')
  for queue in string.gmatch(queues, '%S+') do
    redis.pcall('ZREM', queue_key(queue) .. ':parked', worker)
  end
end

local LOOKS = 10 -- most waiters with a missing or damaged record that one call drops

-- Wake the longest waiter of a queue; returns its inbox's length. A call that leaves work hints again.
local function hint(queue)
  local set = queue_key(queue) .. ':parked'
  local parked = redis.pcall('ZRANGEBYSCORE', set, NOW_TEXT, '+inf', 'LIMIT', '0', int(LOOKS))
  for _, worker in ipairs(parked.err and {} or parked) do
    local row = redis.pcall('HMGET', P .. 'worker:' .. worker .. ':claim', 'parked', 'inbox')
    local queues, inbox = row[1], row[2]
    if queues and inbox and string.find(' ' .. queues .. ' ', ' ' .. queue .. ' ', 1, true) then
      unpark(worker, queues)
      local unheard = redis.pcall('RPUSH', P .. 'inbox:' .. inbox, worker)
      redis.call('PEXPIRE', P .. 'inbox:' .. inbox, '600000')
      return unheard
    end
    redis.call('ZREM', set, worker)
  end
end

local PIECE = 1000 -- most arguments of one command

-- Write a list in pieces: beyond 8,000 items `unpack` raises and the rest would be lost. Members that a damaged key
-- rejects are quarantined. `step`: arguments per member; the last of them is the member.
local function write_all(command, key, list, step)
  for first = 1, #list, PIECE do
    local last = math.min(first + PIECE - 1, #list)
    local reply = redis.pcall(command, key, unpack(list, first, last))
    for at = first + step - 1, type(reply) == 'table' and reply.err and last or 0, step do
      quarantine(list[at])
    end
  end
end

local function flush_index(key, members)
  local adds, drops = {}, {}
  for member, score in pairs(members) do
    if score then
      adds[#adds + 1], adds[#adds + 2] = type(score) == 'string' and score or int(score), member
    else
      drops[#drops + 1] = member
    end
  end
  write_all('ZREM', key, drops, 1)
  write_all('ZADD', key, adds, 2)
end

-- Wake a worker if its timer is set to a later due time.
local function hint_sooner()
  if soonest_at then
    local first = redis.pcall('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')
    if #first == 0 or tonumber(first[2]) > soonest_at then
      hints[soonest_queue] = true
    end
    soonest_queue, soonest_at = nil, nil
  end
end

-- Write the counts, and `waiting` in meta: how many jobs wait in all queues. A damaged count is skipped (see doctor).
local function flush_counts()
  local waiting = 0
  for key, fields in pairs(counts) do
    local of_queue = queue_of[key]
    if of_queue and (fields.running or 0) < 0 and is_gated(of_queue) then
      hints[of_queue] = true -- a job may wait at its gate
    end
    for field, change in pairs(fields) do
      if change ~= 0 then
        local now = redis.pcall('HINCRBY', key, field, int(change))
        if of_queue and WAITING[field] then
          waiting = waiting + change
        end
        if of_queue and field == 'pending' and not (type(now) == 'number' and now > change) then
          index(P .. 'queues:pending', of_queue, 0) -- a queue that had pending jobs before is in it already
        end
      end
    end
  end
  if waiting ~= 0 then
    redis.pcall('HINCRBY', KEYS[1], 'waiting', int(waiting))
  end
end

local function flush_event()
  local entry = {}
  for status, ids in pairs(moves) do
    entry[#entry + 1], entry[#entry + 2] = status, table.concat(ids, ' ')
  end
  if #entry > 0 then
    redis.pcall('XADD', P .. 'events', 'MAXLEN', '~', '1000', '*', unpack(entry))
  end
end

local function write_collected()
  hint_sooner()
  flush_counts()
  for key, members in pairs(indexes) do
    flush_index(key, members)
  end
  write_all('DEL', KEYS[2], keys_gone, 1)
  for command, lists in pairs({ RPUSH = pushes, LPUSH = fronts }) do
    for key, ids in pairs(lists) do
      write_all(command, key, ids, 1)
    end
  end
  for queue in pairs(hints) do
    hint(queue)
  end
  flush_event()
  counts, indexes, pushes, fronts, hints, keys_gone, moves = {}, {}, {}, {}, {}, {}, {}
end

-- Write all collected changes. A script may call it several times.
local function flush()
  if next(moves) or next(counts) or next(indexes) or next(hints) or next(pushes) or next(fronts) or keys_gone[1] or soonest_at then
    write_collected()
  end
  for _, hook in ipairs(AFTER_FLUSH) do
    if hook() then
      flush()
    end
  end
end
