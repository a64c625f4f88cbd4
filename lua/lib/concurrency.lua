-- concurrency: of all jobs that name a key, whatever their queues, only so many run at once.
--
-- concurrency:<key> (HASH): `limit`, as the job says that was made last (`since`); `jobs`, how many have not ended: with
-- the last one all of it goes; `seq` and `front` count places. `:running` (ZSET, id → start) are the slots, each freed by
-- the script that moves its job on. `:waiting:<queue>` (ZSET, id → place) are the pending jobs, the next one first. Those
-- that would have a slot by now were let go into the list of their queue, and have the negative of their place; the others
-- are held: they stand in no list. `:queues` (ZSET) are queues where some wait, those first that were looked at longest
-- ago; `queue:<queue>:keys` (SET) has it the other way round, and `held` in a queue's hash counts those held.
--
-- A slot is taken when a job starts, not when it is let go: each queue has as many in its list as slots are free, and who
-- comes too late is held again. So a queue that nobody serves keeps no slot from the others.

local whose_turn -- which job starts where one was popped
local go_on_letting_go -- have a key looked at once more
local held_in -- jobs of a queue that are held
do
  local BAND = 1e13 -- places of one priority
  local WINDOW = 200 -- most that are let go in a queue before one of them has started
  local LOOK_AGAIN_MS = 60000 -- a key where some are held is looked at even if nothing happens there
  local SUSPECTS = 3
  local to_visit, to_let_go = 200, 500 -- queues and jobs, in one call
  local RUNNING, QUEUES = ':running', ':queues'
  local NAMED = { 'concurrency', 'concurrency_limit', 'created_at', 'priority', 'array' }

  local named = {} -- id → what its job says
  local heads = {} -- array → what its job says
  local touched = {} -- key → 'anew' where something has changed; 'on' to go on
  local arrived = {} -- id → true: it waits since this call
  local listed = {} -- waiting set → true: its queue is in the sets of queues

  local function key_of(name)
    return P .. 'concurrency:' .. name
  end

  local function waiting_of(name, queue)
    return P .. 'concurrency:' .. name .. ':waiting:' .. queue
  end

  local function keys_in(queue)
    return queue_key(queue) .. ':keys'
  end

  local function touch(name)
    touched[name] = 'anew'
  end

  -- What a job says, a task by its array; without `name` where it says nothing.
  local function said_by(id)
    if not named[id] then
      local row = redis.call('HMGET', job_key(id), unpack(NAMED))
      local head = not row[1] and string.match(row[5] or '', '^%S+')
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

  -- The limit of a key is that of the job made last: chunks of a large submission may come behind it.
  local function note_limit(job)
    local key = key_of(job.name)
    local limit, since = unpack(redis.call('HMGET', key, 'limit', 'since'))
    if not limit or job.made_at and job.made_at >= tonumber(since or 0) then
      if limit ~= int(job.limit) then
        touch(job.name)
      end
      redis.call('HSET', key, 'limit', int(job.limit), 'since', int(job.made_at or 0))
    end
  end

  local function free_slots(name, limit)
    return limit - redis.call('ZCARD', key_of(name) .. RUNNING)
  end

  -- Slots of jobs that do not run (a key was damaged, or deleted by hand) are free; the oldest are looked at.
  local function free_stale(name)
    local freed = 0
    for _, id in ipairs(redis.call('ZRANGE', key_of(name) .. RUNNING, '0', int(SUSPECTS - 1))) do
      local row = redis.pcall('HGET', job_key(id), 'status')
      if row ~= 'running' or said_by(id).name ~= name then
        freed = freed + redis.call('ZREM', key_of(name) .. RUNNING, id)
      end
    end
    return freed
  end

  local function wait(said, job, in_front)
    local key, waiting = key_of(said.name), waiting_of(said.name, job.queue)
    local seq = redis.call('HINCRBY', key, in_front and 'front' or 'seq', in_front and '-1' or '1')
    redis.call('ZADD', waiting, int((9 - said.priority) * BAND + BAND / 2 + seq), job.id)
    if not listed[waiting] then
      redis.call('ZADD', key .. QUEUES, 'NX', '0', job.queue)
      redis.call('SADD', keys_in(job.queue), said.name)
      listed[waiting] = true
    end
    kept_back[job.id] = true
    arrived[job.id] = not in_front or nil
    count(queue_key(job.queue), 'held', 1)
    touch(said.name)
  end

  local function wait_no_more(said, job, starts)
    local waiting = waiting_of(said.name, job.queue)
    local place = tonumber(redis.call('ZSCORE', waiting, job.id) or 0)
    redis.call('ZREM', waiting, job.id)
    if place > 0 then
      count(queue_key(job.queue), 'held', -1)
    elseif not starts then
      touch(said.name)
    end
    if redis.call('EXISTS', waiting) == 0 then
      redis.call('ZREM', key_of(said.name) .. QUEUES, job.queue)
      redis.call('SREM', keys_in(job.queue), said.name)
      listed[waiting] = nil
    end
  end

  local function change(job, from, to)
    local said = said_by(job.id)
    if not said.name then
      return
    end
    local running = key_of(said.name) .. RUNNING
    if job.batch then
      from = nil -- it was not admitted: nothing knows of it
    end
    if from == 'running' then
      redis.call('ZREM', running, job.id)
      touch(said.name)
    elseif from == 'pending' then
      wait_no_more(said, job, to == 'running')
    end
    local was_there, is_there = from and not TERMINAL[from], not TERMINAL[to]
    if is_there and not was_there then
      note_limit(said)
      redis.call('HINCRBY', key_of(said.name), 'jobs', '1')
    elseif was_there and not is_there then
      redis.call('HINCRBY', key_of(said.name), 'jobs', '-1')
      touch(said.name)
    end
    if to == 'running' then
      redis.call('ZADD', running, NOW_TEXT, job.id)
    elseif to == 'pending' then
      wait(said, job, from == 'running')
    end
  end

  function HOLDERS.c(job, from, to)
    if not pcall(change, job, from, to) then
      quarantine(job.id)
    end
  end

  -- The first one of those that were let go, of a range of places; what waits no more (its key was deleted) is dropped.
  local function first_let_go(waiting, first, last)
    local best = redis.call('ZREVRANGEBYSCORE', waiting, first, last, 'LIMIT', '0', '1')[1]
    if best and redis.pcall('HGET', job_key(best), 'status') ~= 'pending' then
      redis.call('ZREM', waiting, best)
      return first_let_go(waiting, first, last)
    end
    return best
  end

  local function turn_of(id, queue, list)
    local said = said_by(id)
    if not said.name then
      return id
    end
    local waiting = waiting_of(said.name, queue)
    local place = tonumber(redis.call('ZSCORE', waiting, id) or 0)
    local free = free_slots(said.name, tonumber(redis.call('HGET', key_of(said.name), 'limit') or said.limit))
    if free <= 0 then
      if place < 0 then
        redis.call('ZADD', waiting, int(-place), id)
        count(queue_key(queue), 'held', 1)
        index(P .. 'due', 'refill ' .. said.name, NOW + LOOK_AGAIN_MS)
      end
      return nil
    end
    if free > WINDOW then
      touch(said.name)
    end
    place = math.abs(place)
    local first = first_let_go(waiting, int(-math.floor(place / BAND) * BAND), '(' .. int(-place))
    if first then
      redis.call('LPUSH', list, id)
    end
    return first or id
  end

  -- A job that may have a key was popped from `list`: return which job starts instead, the first one of those that were
  -- let go (the other one goes back to the head of the list), or nil if there is no slot any more.
  function whose_turn(id, queue, holds, list)
    if not string.find(holds, 'c', 1, true) then
      return id
    end
    local ok, first = pcall(turn_of, id, queue, list)
    if not ok then
      quarantine(id)
    end
    return ok and first
  end

  -- Put jobs into the lists of their queue. Who has waited goes to the head, who is new to the tail; `let_go` is in order.
  local function put_into_lists(queue, let_go)
    for i = 1, #let_go do
      if arrived[let_go[i].id] then
        append(pushes, let_go[i].list, let_go[i].id)
      end
    end
    for i = #let_go, 1, -1 do
      if not arrived[let_go[i].id] then
        append(fronts, let_go[i].list, let_go[i].id)
      end
    end
    if #let_go > 0 then
      hints[queue] = true
      count(queue_key(queue), 'held', -#let_go)
    end
  end

  -- Let the first ones go, until those in the list are the next `free` ones. Returns whether others are held, and whether
  -- some of these should not be.
  local function let_go_in(name, queue, free)
    local waiting, most = waiting_of(name, queue), math.min(free, WINDOW)
    local number = math.min(most, to_let_go)
    local held = redis.call('ZRANGEBYSCORE', waiting, '(0', '+inf', 'WITHSCORES', 'LIMIT', '0', int(number + 1))
    local released = redis.call('ZCOUNT', waiting, '-inf', '(0')
    local scores, let_go = {}, {}
    for at = 1, math.min(#held, 2 * number), 2 do
      local id, place, before = held[at], tonumber(held[at + 1]), #let_go + released
      if before >= most then
        before = #let_go + redis.call('ZCOUNT', waiting, '(' .. int(-place), '(0')
      end
      if before >= most then
        first_let_go(waiting, '(0', '-inf') -- if it is gone, there is room at the next look
        break
      end
      scores[#scores + 1], scores[#scores + 2] = int(-place), id
      local list = queue_key(queue) .. ':pending:' .. int(9 - math.floor(place / BAND))
      let_go[#let_go + 1] = { id = id, list = list }
    end
    if #let_go > 0 then
      redis.call('ZADD', waiting, unpack(scores))
      put_into_lists(queue, let_go)
      to_let_go = to_let_go - #let_go
    end
    local others = #held > 2 * #let_go
    return others, others and number < most and #let_go == number
  end

  -- The queues to look at now, and how many others are to be looked at then.
  local function queues_to_visit(name, anew, rest)
    local key = key_of(name)
    local queues = redis.call('ZRANGE', key .. QUEUES, '0', int(to_visit))
    if #queues <= to_visit then
      rest = 0
    else
      queues[#queues] = nil
      rest = (anew and redis.call('ZCARD', key .. QUEUES) or rest) - #queues
      local turn = int(redis.call('HINCRBY', key, 'turn', '1'))
      local scores = {}
      for i, queue in ipairs(queues) do
        scores[2 * i - 1], scores[2 * i] = turn, queue
      end
      redis.call('ZADD', key .. QUEUES, unpack(scores))
    end
    to_visit = to_visit - #queues
    return queues, math.max(rest, 0)
  end

  -- Have as many jobs in the lists as there are slots. What is too much for one call, the next one goes on with.
  local function let_go(name, anew)
    local key, again = key_of(name), 'refill ' .. name
    local limit, jobs, rest = unpack(redis.call('HMGET', key, 'limit', 'jobs', 'rest'))
    index(P .. 'due', again, false)
    if redis.call('EXISTS', key .. QUEUES) == 0 then
      if tonumber(jobs or 0) <= 0 and redis.call('EXISTS', key .. RUNNING) == 0 then
        redis.call('DEL', key)
      end
      return
    end
    limit = tonumber(limit or 1)
    local free = free_slots(name, limit)
    if free <= 0 then
      free = free + free_stale(name)
    end
    if free <= 0 then
      index(P .. 'due', again, NOW + LOOK_AGAIN_MS)
      return
    end
    if to_visit <= 0 then
      redis.call('HSET', key, 'rest', 'all')
      index(P .. 'due', again, NOW)
      return
    end
    local queues
    queues, rest = queues_to_visit(name, anew or rest == 'all', tonumber(rest or '') or 0)
    local held, cut = false, false
    for _, queue in ipairs(queues) do
      local others, too_early = let_go_in(name, queue, free)
      held, cut = held or others, cut or too_early
    end
    if cut or rest > 0 then
      redis.call('HSET', key, 'rest', cut and 'all' or int(rest))
      index(P .. 'due', again, NOW)
    elseif held then
      index(P .. 'due', again, NOW + LOOK_AGAIN_MS)
    end
  end

  AFTER_FLUSH[#AFTER_FLUSH + 1] = function()
    local names = touched
    if not next(names) then
      return false
    end
    touched = {}
    for name, how in pairs(names) do
      if not pcall(let_go, name, how == 'anew') then
        quarantine('concurrency:' .. name)
      end
    end
    arrived = {}
    return true
  end

  function go_on_letting_go(name)
    index(P .. 'due', 'refill ' .. name, false)
    touched[name] = touched[name] or 'on'
  end

  -- Every key is in the set only as long as it has some here: so many keys are enough for so many jobs.
  function held_in(queue, number)
    local ids = {}
    for _, name in ipairs(redis.call('SRANDMEMBER', keys_in(queue), int(number))) do
      if #ids < number then
        for _, id in ipairs(redis.call('ZRANGE', waiting_of(name, queue), '0', int(number - #ids - 1))) do
          ids[#ids + 1] = id
        end
      end
    end
    return ids
  end
end
