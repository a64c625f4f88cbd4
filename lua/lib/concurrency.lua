-- concurrency: let jobs of a concurrency key go into the lists of their queues (see slots), as slots get free.
-- uses: formats slots
--
-- After each call that has changed something of a key, the first jobs in each line are let go, as many as slots are free.
-- That is bounded: so many queues and jobs in one call. What is left then is `refill <key>` in `due`, so that whoever
-- claims next goes on; `rest` counts the queues that have not been looked at. Where no slot is free nothing is to be done
-- until one gets free, by a call that has changed something of the key; slots that were lost are found by maintain_repair.

do

local BAND, QUEUES, RUNNING = SLOTS.BAND, ':queues', ':running'
local SUSPECTS = 3
local to_visit, to_let_go = 64, 500 -- queues and jobs, in one call
local key_of, waiting_of, first_let_go = SLOTS.key_of, SLOTS.waiting_of, SLOTS.first_let_go

-- Slots of jobs that do not run (a key was damaged, or deleted by hand) are free; the oldest are looked at.
local function free_stale(name)
  local freed = 0
  for _, id in ipairs(redis.call('ZRANGE', key_of(name) .. RUNNING, '0', int(SUSPECTS - 1))) do
    local row = redis.pcall('HGET', job_key(id), 'status')
    if row ~= 'running' or SLOTS.said_by(id).name ~= name then
      freed = freed + redis.call('ZREM', key_of(name) .. RUNNING, id)
    end
  end
  return freed
end

-- Put jobs into the lists of their queue. Who has waited goes to the head, who is new to the tail; `let_go` is in order.
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
  if #let_go > 0 then
    hints[queue] = true
    count(queue_key(queue), 'held', -#let_go)
  end
end

-- Let the first ones go, until those in the list are the next `free` ones. Returns whether some are held that should not be.
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
      first_let_go(name, queue, '(0', '-inf') -- if it is gone, there is room at the next look
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

-- The queues to look at now; `rest` becomes how many others are to be looked at then, -1: all.
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

-- Let jobs go in all queues. Returns whether there are more to let go, in another call.
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
    hints[next_queue] = true -- who is woken goes on
    return true
  end
  for _, queue in ipairs(queues_to_visit(name, changed)) do
    if let_go_in(name, queue, free) then
      about.rest = -1
    end
  end
  return about.rest ~= 0
end

-- Have as many jobs in the lists as there are slots. What is too much for one call, the next one goes on with.
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

-- Have a key looked at once more.
function SLOTS.look_again(name)
  index(P .. 'due', FORMATS.timer('refill', name), false)
  SLOTS.touched[name] = SLOTS.touched[name] or 'on'
end

-- Jobs of a queue that wait for a slot. A key is in the set only as long as it has some: so many keys are enough.
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
