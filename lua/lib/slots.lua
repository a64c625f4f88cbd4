-- slots: limit how many jobs with the same concurrency key run at once, in all queues together.
--
-- concurrency:<key> (HASH): `limit`, from the job created last (at `since`); `jobs`, how many have not ended: the last
-- one deletes the hash; `seq` and `front` count positions; for `turn` and `rest` see lib/concurrency. `:running` (ZSET,
-- id → start) has the slots: the script that moves a job on frees its slot. `:waiting:<queue>` (ZSET, id → position)
-- has the pending jobs, the next one first. Jobs for which a slot may be free are admitted to the list of their queue,
-- and have the negative of their position. The others are held: they are in no list. `:queues` (ZSET) has the queues
-- with waiting jobs, the queue visited longest ago first. `queue:<queue>:keys` (ZSET, all 0) has the keys of a queue.
-- `held` in a queue's hash counts its held jobs.
--
-- A job takes a slot when it starts, not when it is admitted. Each queue has as many jobs in its list as slots are
-- free, and a job that comes too late is held again. So a queue without workers keeps no slot from the others.
-- lib/concurrency decides when a job is admitted.

local SLOTS = { -- one local for all that other parts need: a script may have 200
  BAND = 1e13, -- positions per priority
  WINDOW = 200, -- most admitted jobs of a queue before one of them has started
  touched = {}, -- key → 'changed' if something has changed; 'on' to continue
  arrived = {}, -- id → true: it started to wait in this call
}

do

local BAND = SLOTS.BAND
local RUNNING, QUEUES = ':running', ':queues'
local NAMED = { 'concurrency', 'concurrency_limit', 'created_at', 'priority', 'array' }
local COUNTS = { 'limit', 'since', 'jobs', 'seq', 'front', 'turn', 'rest' }

local named = {} -- id → its key, limit and priority
local heads = {} -- array → its key and limit
local listed = {} -- waiting set → true: its queue is in the sets of queues
local abouts = {} -- key → its hash

function SLOTS.key_of(name)
  return P .. 'concurrency:' .. name
end

function SLOTS.waiting_of(name, queue)
  return P .. 'concurrency:' .. name .. ':waiting:' .. queue
end

function SLOTS.keys_in(queue)
  return queue_key(queue) .. ':keys'
end

local function touch(name)
  SLOTS.touched[name] = 'changed'
end

-- Return a job's key, limit, time of creation and priority; a task takes key and limit from its
-- array. `name` is false without a key.
function SLOTS.said_by(id)
  if not named[id] then
    local row = redis.call('HMGET', job_key(id), unpack(NAMED))
    local head = not row[1] and row[5]
    if head then
      heads[head] = heads[head] or redis.call('HMGET', job_key(head), 'concurrency', 'concurrency_limit')
      row[1], row[2] = heads[head][1], heads[head][2]
    end
    named[id] = {
      name = row[1],
      limit = tonumber(row[2] or '') or 1,
      made_at = not head and tonumber(row[3] or ''),
      priority = tonumber(row[4] or '5'),
    }
  end
  return named[id]
end

-- Return the hash of a key. It is read once, and written after all changes of this call.
function SLOTS.about_key(name)
  if not abouts[name] then
    local about, row = {}, redis.call('HMGET', SLOTS.key_of(name), unpack(COUNTS))
    for i, field in ipairs(COUNTS) do
      about[field] = tonumber(row[i] or '') or 0
    end
    about.stored = row
    abouts[name] = about
  end
  return abouts[name]
end

-- The limit of a key comes from the job created last: chunks of a large submission may arrive after that job.
local function note_limit(job)
  local about = SLOTS.about_key(job.name)
  if job.made_at and job.made_at >= about.since then -- not a task: `next_place` sets the limit if there is none
    about.limit, about.since = job.limit, job.made_at
    touch(job.name)
  end
  return about
end

function SLOTS.free_slots(name)
  return SLOTS.about_key(name).limit - redis.call('ZCARD', SLOTS.key_of(name) .. RUNNING)
end

-- Positions count up for jobs that arrive, and down for jobs that come back.
local function next_place(said, in_front)
  local about, field, step = SLOTS.about_key(said.name), in_front and 'front' or 'seq', in_front and -1 or 1
  about[field] = about[field] + step
  about.limit = about.limit > 0 and about.limit or said.limit -- the hash was deleted: limit 0 would admit no job
  return (9 - said.priority) * BAND + BAND / 2 + about[field]
end

local function wait(said, job, in_front)
  local waiting = SLOTS.waiting_of(said.name, job.queue)
  redis.call('ZADD', waiting, int(next_place(said, in_front)), job.id)
  if not listed[waiting] then
    redis.call('ZADD', SLOTS.key_of(said.name) .. QUEUES, 'NX', '0', job.queue)
    redis.call('ZADD', SLOTS.keys_in(job.queue), '0', said.name)
    listed[waiting] = true
  end
  kept_back[job.id] = true
  SLOTS.arrived[job.id] = not in_front or nil
  count(queue_key(job.queue), 'held', 1)
  touch(said.name)
end

local function drop(name, queue, id)
  local waiting = SLOTS.waiting_of(name, queue)
  redis.call('ZREM', waiting, id)
  if redis.call('EXISTS', waiting) == 0 then
    redis.call('ZREM', SLOTS.key_of(name) .. QUEUES, queue)
    redis.call('ZREM', SLOTS.keys_in(queue), name)
    listed[waiting] = nil
  end
end

local function wait_no_more(said, job, starts)
  local place = tonumber(redis.call('ZSCORE', SLOTS.waiting_of(said.name, job.queue), job.id) or 0)
  drop(said.name, job.queue, job.id)
  if place > 0 then
    count(queue_key(job.queue), 'held', -1)
  end
  if not starts then
    touch(said.name)
  end
end

local function change(job, from, to)
  local said = SLOTS.said_by(job.id)
  if not said.name then
    return
  end
  local running = SLOTS.key_of(said.name) .. RUNNING
  if from == 'running' then
    redis.call('ZREM', running, job.id)
    touch(said.name)
  elseif from == 'pending' then
    wait_no_more(said, job, to == 'running')
  end
  local was_there, is_there = from and not TERMINAL[from], not TERMINAL[to]
  if is_there ~= (was_there or false) then
    local about = is_there and note_limit(said) or SLOTS.about_key(said.name)
    about.jobs = about.jobs + (is_there and 1 or -1)
    touch(said.name)
  end
  if to == 'running' then
    redis.call('ZADD', running, NOW_TEXT, job.id)
  elseif to == 'pending' then
    wait(said, job, from == 'running')
  end
end

function HOOKS.concurrency(job, from, to)
  if not pcall(change, job, from, to) then
    quarantine(job.id)
  end
end

-- Return the first admitted job within a range of positions. A job that waits no
-- longer (its key was deleted) is dropped.
function SLOTS.first_let_go(name, queue, first, last)
  local best = redis.call('ZREVRANGEBYSCORE', SLOTS.waiting_of(name, queue), first, last, 'LIMIT', '0', '1')[1]
  if best and redis.pcall('HGET', job_key(best), 'status') ~= 'pending' then
    drop(name, queue, best)
    return SLOTS.first_let_go(name, queue, first, last)
  end
  return best
end

local function turn_of(id, queue, list)
  local said = SLOTS.said_by(id)
  if not said.name then
    return id
  end
  local waiting = SLOTS.waiting_of(said.name, queue)
  local place = tonumber(redis.call('ZSCORE', waiting, id) or 0)
  local free = SLOTS.free_slots(said.name)
  if free <= 0 then
    if place < 0 then
      redis.call('ZADD', waiting, int(-place), id)
      count(queue_key(queue), 'held', 1)
    end
    return nil
  end
  if free > SLOTS.WINDOW then
    touch(said.name)
  end
  place = math.abs(place)
  local first = SLOTS.first_let_go(said.name, queue, int(-math.floor(place / BAND) * BAND), '(' .. int(-place))
  if first then
    redis.call('LPUSH', list, id)
  end
  return first or id
end

-- A job that may have a concurrency key was popped from `list`. Return the job that starts instead: the first admitted
-- one (the popped job then goes back to the head of the list), or nil if no slot is free.
function SLOTS.whose_turn(id, queue, hooks, list)
  if not has_hook(hooks, 'concurrency') then
    return id
  end
  local ok, first = pcall(turn_of, id, queue, list)
  if not ok then
    quarantine(id)
  end
  return ok and first
end

-- Remove a pending job from the waiting jobs of its key, or add it in its present queue.
function SLOTS.leave_line(job)
  HOOKS.concurrency(job, 'pending', 'blocked')
end

function SLOTS.join_line(job)
  HOOKS.concurrency(job, 'blocked', 'pending')
end

-- Write the counts of a key that changed in this call.
function SLOTS.write(name)
  local about, fields = SLOTS.about_key(name), {}
  for i, field in ipairs(COUNTS) do
    local value = int(about[field])
    if value ~= (about.stored[i] or '0') then
      fields[#fields + 1], fields[#fields + 2] = field, value
      about.stored[i] = value
    end
  end
  if #fields > 0 then
    redis.call('HSET', SLOTS.key_of(name), unpack(fields))
  end
end

function SLOTS.forget(name)
  redis.call('DEL', SLOTS.key_of(name))
  abouts[name] = nil
end

end
