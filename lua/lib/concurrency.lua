-- concurrency: admit jobs with a concurrency key to the lists of their queues (see slots) as slots become free.
-- uses: formats slots
--
-- After each call that changes something of a key, the first jobs in each queue are admitted, as many as slots are
-- free. A call visits a limited number of queues and admits a limited number of jobs. If it leaves some, `refill <key>`
-- in `due` makes the next claim continue; `rest` counts the queues that have not been visited. If no slot is free,
-- nothing happens until a call that changes something of the key frees one. maintain_repair finds slots that were lost.

do

local BAND, QUEUES, RUNNING = SLOTS.BAND, ':queues', ':running'
local SUSPECTS = 3
-- Queues and jobs, in one call. A call of a submission has at most 100 jobs with a key (see workron/store/encode.py).
local to_visit, to_let_go = 100, 500
local looks = to_visit -- keys to visit again, in one call
local key_of, waiting_of, first_let_go = SLOTS.key_of, SLOTS.waiting_of, SLOTS.first_let_go

-- Free the slots of jobs that do not run (a key was damaged, or deleted by hand). Only the oldest slots are checked.
local function free_stale(name)
  local freed = 0
  for _, id in ipairs(redis.call('ZRANGE', key_of(name) .. RUNNING, '0', int(SUSPECTS - 1))) do
    if redis.pcall('HGET', job_key(id), 'status') ~= 'running' then
      freed = freed + redis.call('ZREM', key_of(name) .. RUNNING, id)
    end
  end
  return freed
end

-- Put jobs into the lists of their queue. Jobs that have waited go to the head, new
-- ones to the tail. `let_go` is in order.
local function put_into_lists(queue, let_go)
  for i = 1, #let_go do
    if SLOTS.arrived[let_go[i].id] then
      append(pushes, let_go[i].list, let_go[i].id)
    end
  end
  for i = #let_go, 1, -1 do
    if not SLOTS.arrived[let_go[i].id] then
      append(fronts, let_go[i].list, let_go[i].id)
    end
  end
  hints[queue] = true
  count(queue_key(queue), 'held', -#let_go)
end

-- Admit the first jobs until the next `free` jobs are in the list. Returns whether
-- jobs are still held that should not be.
local function let_go_in(name, queue, free)
  local waiting, most = waiting_of(name, queue), math.min(free, SLOTS.WINDOW)
  local number = math.min(most, to_let_go)
  local held = redis.call('ZRANGEBYSCORE', waiting, '(0', '+inf', 'WITHSCORES', 'LIMIT', '0', int(number + 1))
  local released = #held > 0 and redis.call('ZCOUNT', waiting, '-inf', '(0')
  local scores, let_go = {}, {}
  for at = 1, math.min(#held, 2 * number), 2 do
    local id, place, before = held[at], tonumber(held[at + 1]), #let_go + released
    if before >= most then
      before = #let_go + redis.call('ZCOUNT', waiting, '(' .. int(-place), '(0')
    end
    if before >= most then
      first_let_go(name, queue, '(0', '-inf') -- if that job is gone, the next visit finds the room
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
  return number < most and #let_go == number and #held > 2 * number
end

-- Return the queues to visit now. Sets `rest` to the number of other queues that are still to be visited; -1: all.
local function queues_to_visit(name, changed)
  local key, about = key_of(name), SLOTS.about_key(name)
  local queues = redis.call('ZRANGE', key .. QUEUES, '0', int(to_visit))
  if #queues <= to_visit then
    about.rest = 0
  else
    queues[#queues] = nil
    local rest = (changed or about.rest < 0) and redis.call('ZCARD', key .. QUEUES) or about.rest
    about.rest = math.max(rest - #queues, 0)
    about.turn = about.turn + 1
    local scores = {}
    for i, queue in ipairs(queues) do
      scores[2 * i - 1], scores[2 * i] = int(about.turn), queue
    end
    redis.call('ZADD', key .. QUEUES, unpack(scores))
  end
  to_visit = to_visit - #queues
  return queues
end

-- Admit jobs in all queues. Returns whether another call has to admit more.
local function let_go_in_all(name, next_queue, changed)
  local free, about = SLOTS.free_slots(name), SLOTS.about_key(name)
  if free <= 0 then
    free = free + free_stale(name)
  end
  if free <= 0 then
    return false
  end
  if to_visit <= 0 then
    about.rest = -1
    hints[next_queue] = true -- the woken worker continues
    return true
  end
  for _, queue in ipairs(queues_to_visit(name, changed)) do
    if let_go_in(name, queue, free) then
      about.rest = -1
    end
  end
  return about.rest ~= 0
end

-- Admit as many jobs as there are slots. If that is too much for one call, the next call continues.
local function let_go(name, changed)
  local key = key_of(name)
  local next_queue = redis.call('ZRANGE', key .. QUEUES, '0', '0')[1]
  if next_queue and let_go_in_all(name, next_queue, changed) then
    index(P .. 'due', FORMATS.timer('refill', name), NOW)
  end
  if next_queue or SLOTS.about_key(name).jobs > 0 or redis.call('EXISTS', key .. RUNNING) == 1 then
    SLOTS.write(name)
  else
    SLOTS.forget(name)
  end
end

AFTER_FLUSH[#AFTER_FLUSH + 1] = function()
  local names = SLOTS.touched
  if not next(names) then
    return false
  end
  SLOTS.touched = {}
  for name, how in pairs(names) do
    if not pcall(let_go, name, how == 'changed') then
      quarantine('concurrency:' .. name)
    end
  end
  SLOTS.arrived = {}
  return true
end

-- Visit a key again. Returns false if this call visits enough keys: the timer stays, and the key is not read.
function SLOTS.look_again(name)
  if looks == 0 then
    return false
  end
  looks = looks - 1
  index(P .. 'due', FORMATS.timer('refill', name), false)
  SLOTS.touched[name] = SLOTS.touched[name] or 'on'
  return true
end

-- Return jobs of a queue that wait for a slot. A key is in the set only while it
-- has such jobs, so `number` keys suffice.
function SLOTS.waiting_in(queue, number)
  local ids = {}
  for _, name in ipairs(redis.call('ZRANGE', SLOTS.keys_in(queue), '0', int(number - 1))) do
    if #ids < number then
      for _, id in ipairs(redis.call('ZRANGE', waiting_of(name, queue), '0', int(number - #ids - 1))) do
        ids[#ids + 1] = id
      end
    end
  end
  return ids
end

end
