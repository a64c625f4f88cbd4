-- arrays: tasks that share one job's fields. The job (`A` in its `holds`) is `blocked` until all its tasks have ended; a
-- task (`a`) has a hash of its own from when it may start: what that does not say, the job says.
--
-- array:<job> (HASH): `size`; `made`, how many tasks have been made; `parallel`, how many may be unfinished at once;
-- `started`; `dropped` as cancelled or skipped before they were made; a count per status; `walk`, what `array` is to do
-- with each task that was made, and from which on. Room for those not yet made is `reserved` in the queue.

local WINDOW, MADE_PER_CALL = 1000, 100 -- most tasks that wait, and that are made in one call
local DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
local to_make = MADE_PER_CALL
local touched = {} -- array → true: its tasks have moved in this call

local function array_key(array)
  return P .. 'array:' .. array
end

-- The id that comes `steps` behind: ids are numbers of 22 digits to the base 62.
local function id_behind(id, steps)
  local tail, at = '', 22
  while steps > 0 do
    local sum = string.find(DIGITS, string.sub(id, at, at), 1, true) - 1 + steps
    local digit = sum % 62 + 1
    tail = string.sub(DIGITS, digit, digit) .. tail
    steps, at = math.floor(sum / 62), at - 1
  end
  return string.sub(id, 1, at) .. tail
end

local function task_id(head, place)
  return id_behind(head.array_first, place)
end

local function array_row(array)
  local row = redis.call('HMGET', array_key(array), 'size', 'made', 'parallel', 'started', 'pending', 'scheduled',
    'running', 'done', 'failed', 'cancelled', 'skipped', 'walk')
  local numbers = {}
  for i = 1, 11 do
    numbers[i] = tonumber(row[i] or 0)
  end
  return {
    size = numbers[1], made = numbers[2], parallel = row[3] and numbers[3], started = row[4],
    waiting = numbers[5] + numbers[6], running = numbers[7], done = numbers[8], failed = numbers[9],
    cancelled = numbers[10], skipped = numbers[11], ended = numbers[8] + numbers[9] + numbers[10] + numbers[11],
    walk = row[12],
  }
end

-- Have `array` go on with it: the submitter does, or the reaper.
local function work_on_array(array)
  redis.call('ZADD', P .. 'arrays', NOW_TEXT, array)
end

local function make_task(head, place)
  local id, about = task_id(head, place), head.id .. ' ' .. int(place)
  local fields = { 'status', 'pending', 'array', about, 'holds', 'a' }
  if head.queue ~= 'default' then
    fields[#fields + 1], fields[#fields + 2] = 'queue', head.queue
  end
  if head.priority ~= '5' then
    fields[#fields + 1], fields[#fields + 2] = 'priority', head.priority
  end
  redis.call('HSET', job_key(id), unpack(fields))
  index(P .. 'jobs', id, 0)
  arrive({ id = id, queue = head.queue, priority = head.priority, holds = 'a', array = about }, 'pending')
end

-- Make as many tasks as may start soon; returns whether it made any.
local function make_tasks(head, row)
  local room = row.parallel and row.parallel - row.waiting - row.running or WINDOW - row.waiting
  room = math.min(room, row.size - row.made)
  local number = math.min(room, to_make)
  if room > to_make then
    work_on_array(head.id)
  end
  if number <= 0 then
    return false
  end
  to_make = to_make - number
  for place = row.made, row.made + number - 1 do
    make_task(head, place)
  end
  redis.call('HSET', array_key(head.id), 'made', int(row.made + number))
  count(queue_key(head.queue), 'reserved', -number)
  return true
end

local function end_array(head, row)
  local outcome, status = {}, 'done'
  if row.failed + row.skipped > 0 then
    status = 'failed'
    outcome.reason = 'upstream'
    outcome.error = int(row.failed + row.skipped) .. ' of ' .. int(row.size) .. ' tasks have not succeeded'
  end
  if head.cancel_requested_at or status == 'done' and row.cancelled > 0 then
    status, outcome = 'cancelled', { reason = 'cancelled' }
  end
  end_job(head, status, outcome)
end

-- A task runs anew: so does its array.
local function reopen_array(head)
  redis.call('HSET', job_key(head.id), 'status', 'blocked', 'run', int(head.run + 1))
  redis.call('HDEL', job_key(head.id), 'finished_at', 'reason', 'error', 'caused_by', 'cancel_requested_at')
  move(head, 'blocked')
  push_propagate(head)
end

-- Bring an array to what its tasks demand; returns whether that moved anything.
local function settle_array(array)
  local head, row = read(array), array_row(array)
  if not head or row.size == 0 then
    return false
  end
  if row.walk then
    return false -- when all tasks have been gone over
  end
  local over = row.ended >= row.size
  if over ~= (TERMINAL[head.status] or false) then
    (over and end_array or reopen_array)(head, row)
    return true
  end
  return not over and row.started and row.made < row.size and make_tasks(head, row)
end

AFTER_FLUSH[#AFTER_FLUSH + 1] = function()
  local arrays, moved = touched, false
  touched = {}
  for array in pairs(arrays) do
    moved = settle_array(array) or moved
  end
  return moved
end

-- Tasks that were never made end with their array.
local function drop_rest(head, as)
  local row = array_row(head.id)
  local rest = row.size - row.made
  if rest > 0 then
    redis.call('HSET', array_key(head.id), 'made', int(row.size), 'dropped', int(rest) .. ' ' .. as)
    count(array_key(head.id), as, rest)
    count(queue_key(head.queue), 'reserved', -rest)
  end
end

local function restore_rest(head)
  local number, as = string.match(redis.call('HGET', array_key(head.id), 'dropped') or '', '^(%d+) (%a+)$')
  if number then
    redis.call('HINCRBY', array_key(head.id), 'made', '-' .. number)
    redis.call('HDEL', array_key(head.id), 'dropped')
    count(array_key(head.id), as, -tonumber(number))
    count(queue_key(head.queue), 'reserved', tonumber(number))
  end
end

function HOLDERS.A(head, from, to)
  local key = array_key(head.id)
  if not from then
    redis.call('HSET', key, 'size', head.array_size, 'made', '0')
    if head.array_parallel then
      redis.call('HSET', key, 'parallel', head.array_parallel)
    end
    redis.call('PERSIST', key .. ':values')
    count(queue_key(head.queue), 'reserved', tonumber(head.array_size))
  elseif from == 'skipped' or rawget(head, 'anew') then
    restore_rest(head)
  end
  if to == 'pending' then -- it starts
    redis.call('HSET', job_key(head.id), 'status', 'blocked')
    redis.call('HSET', key, 'started', '1')
    touched[head.id] = true
    return 'blocked'
  elseif TERMINAL[to] then
    drop_rest(head, to == 'skipped' and 'skipped' or 'cancelled')
  end
end

function HOLDERS.a(task, from, to)
  local array = string.match(task.array or '', '^%S+')
  if array then
    if from then
      count(array_key(array), from, -1)
    end
    count(array_key(array), to, 1)
    touched[array] = true
  end
end

-- Have all tasks of an array that has started cancelled: those not made at once, the others by and by.
local function cancel_array(head)
  redis.call('HSET', job_key(head.id), 'cancel_requested_at', NOW_TEXT)
  head.cancel_requested_at = NOW
  drop_rest(head, 'cancelled')
  redis.call('HSET', array_key(head.id), 'walk', 'cancel 0')
  work_on_array(head.id)
  append(moves, 'cancelling', head.id)
  touched[head.id] = true
end

local function is_array(job)
  return job.holds and string.find(job.holds, 'A', 1, true)
end

-- Have those of the tasks run again that have not succeeded.
local function retry_tasks(head)
  redis.call('HSET', array_key(head.id), 'walk', 'retry 0')
  work_on_array(head.id)
end
