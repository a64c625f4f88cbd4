-- arrays: jobs with many tasks that share the job's fields. The array (hook `array`) stays `blocked` until all
-- its tasks have ended. A task (hook `task`) gets a hash of its own when it may start. The array's hash supplies
-- the fields that the task's hash lacks.
-- uses: timers ends
--
-- array:<job> (HASH): `size`, the number of tasks; `made`, how many tasks have been created; `parallel`, the
-- most unfinished tasks at once; `started`, 1 once the array has started; `begun`, the number of attempts of its
-- tasks in this run; a count per status. `walk` is what array_advance does with each created task, from index
-- `walk_at` on. `dropped` is the number of tasks that ended as `dropped_as` before they were created, and
-- `dropped_from` the value of `made` at that time.
--
-- `:skip` (SET) has the tasks that were cancelled before they were created. The queue's count `reserved`
-- keeps room for the other tasks that are not created yet. `:turns` (ZSET, index → index) has the tasks that
-- wait to run, or to run again, until `parallel` allows it. `:swept` (STRING) has a bit for each task that
-- was done and then deleted before its array.

local FOLLOWS = {} -- filled in by lib/follows

local ARRAYS = {
  WHEN = 'done', -- the condition for a follower's tasks if a damaged array has lost it
}

do

local WINDOW, MADE_PER_CALL = 1000, 100 -- most waiting tasks of an array; most tasks created in one call
local DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
local to_make = MADE_PER_CALL
local touched = {} -- arrays whose tasks moved in this call, in order; also array → true

-- Mark an array to be settled after the flush.
function ARRAYS.touch(array)
  if not touched[array] then
    touched[array], touched[#touched + 1] = true, array
  end
end

function ARRAYS.key(array)
  return P .. 'array:' .. array
end

-- Return the id that is `steps` after `id`. Ids are numbers of 22 digits in base 62.
local function id_behind(id, steps)
  local tail, at = '', 22
  while steps > 0 do -- bound: the 22 digits of an id
    local sum = string.find(DIGITS, string.sub(id, at, at), 1, true) - 1 + steps
    local digit = sum % 62 + 1
    tail = string.sub(DIGITS, digit, digit) .. tail
    steps, at = math.floor(sum / 62), at - 1
  end
  return string.sub(id, 1, at) .. tail
end

function ARRAYS.task_id(head, place)
  return id_behind(head.array_first, place)
end

function ARRAYS.row(array)
  local row = redis.call('HMGET', ARRAYS.key(array), 'size', 'made', 'parallel', 'started', 'pending', 'scheduled',
    'running', 'done', 'failed', 'cancelled', 'skipped', 'walk', 'walk_at', 'follows', 'follows_when', 'dropped_from')
  local numbers = {}
  for i = 1, 11 do
    numbers[i] = tonumber(row[i] or '') or 0 -- a damaged count is taken as 0
  end
  return {
    size = numbers[1], made = numbers[2], parallel = row[3] and numbers[3], started = row[4],
    waiting = numbers[5] + numbers[6], running = numbers[7], done = numbers[8], failed = numbers[9],
    cancelled = numbers[10], skipped = numbers[11], ended = numbers[8] + numbers[9] + numbers[10] + numbers[11],
    walk = row[12], walk_at = tonumber(row[13] or '') or 0, follows = row[14], follows_when = row[15], dropped_from = row[16],
    prefix = row[14] and 0 or numbers[2], -- every task below this index was created, or cancelled before that
    turns = row[3] and redis.call('ZCARD', ARRAYS.key(array) .. ':turns') or 0,
  }
end

function ARRAYS.was_done(array, place)
  return redis.pcall('GETBIT', ARRAYS.key(array) .. ':swept', int(place)) == 1
end

-- Let array_advance continue with an array. The submitter or the reaper calls it.
function ARRAYS.work_on(array)
  redis.pcall('ZADD', P .. 'arrays', NOW_TEXT, array)
end

-- Create one task. `fields` are the extra fields of a task that ends at once with `status`.
local function make_task(head, place, status, fields)
  local id, index_text = ARRAYS.task_id(head, place), int(place)
  local hooks = has_hook(head.hooks, 'concurrency') and 'task concurrency' or 'task'
  status, fields = status or 'pending', fields or {}
  for _, value in ipairs({ 'status', status, 'array', head.id, 'index', index_text, 'hooks', hooks }) do
    fields[#fields + 1] = value
  end
  if head.queue ~= 'default' then
    fields[#fields + 1], fields[#fields + 2] = 'queue', head.queue
  end
  if head.priority ~= '5' then
    fields[#fields + 1], fields[#fields + 2] = 'priority', head.priority
  end
  redis.call('HSET', job_key(id), unpack(fields))
  index(P .. 'jobs', id, 0)
  arrive({
    id = id, queue = head.queue, priority = head.priority, hooks = hooks, array = head.id, index = index_text,
  }, status)
end

-- Create the next tasks of an array. Even if `made` is wrong, no task is created or run twice.
local function make_new(head, row, number)
  local skip = ARRAYS.key(head.id) .. ':skip'
  local skips = redis.call('EXISTS', skip) == 1
  for place = row.made, row.made + number - 1 do
    local skipped = skips and redis.call('SREM', skip, int(place)) == 1
    if not skipped and redis.call('EXISTS', job_key(ARRAYS.task_id(head, place))) == 0 then
      make_task(head, place)
      count(queue_key(head.queue), 'reserved', -1)
    else
      ARRAYS.touch(head.id) -- there is room for another task
    end
  end
  redis.call('HSET', ARRAYS.key(head.id), 'made', int(row.made + number))
end

-- Create a task that follows the task with the same index in another array.
function ARRAYS.make_following(head, place, status, fields)
  make_task(head, place, status, fields)
  redis.call('HINCRBY', ARRAYS.key(head.id), 'made', '1')
  count(queue_key(head.queue), 'reserved', -1)
end

-- Run a task again that has not succeeded. A task that was cancelled before it was created is created now.
function ARRAYS.run_again(head, row, place)
  local task = read(ARRAYS.task_id(head, place))
  if task and TERMINAL[task.status] and task.status ~= 'done' then
    ENDS.start_again(task)
  elseif not task and place < row.prefix then
    count(ARRAYS.key(head.id), 'cancelled', -1)
    make_task(head, place)
  elseif not task and row.follows and redis.call('SISMEMBER', ARRAYS.key(head.id) .. ':skip', int(place)) == 0 then
    ARRAYS.make_following(head, place)
  else
    ARRAYS.touch(head.id) -- there is room for another task
  end
end

-- Create as many tasks as may start soon; tasks in `:turns` come first. Returns false if there was nothing to do.
local function make_tasks(head, row)
  local room = row.parallel and row.parallel - row.waiting - row.running or WINDOW - row.waiting
  local new = row.follows and 0 or row.size - row.made
  room = math.min(room, row.turns + new)
  if room > to_make then
    ARRAYS.work_on(head.id)
  end
  local number = math.min(room, to_make)
  if number <= 0 then
    return false
  end
  to_make = to_make - number
  local turns = math.min(number, row.turns)
  if turns > 0 then
    local places = redis.call('ZPOPMIN', ARRAYS.key(head.id) .. ':turns', int(turns))
    for at = 1, #places, 2 do
      local place = tonumber(places[at])
      if place and place < row.size then
        ARRAYS.run_again(head, row, place)
      else
        ARRAYS.touch(head.id) -- the entry is damaged: the next one has its turn
      end
    end
  end
  if number > turns then
    make_new(head, row, number - turns)
  end
  return true
end

-- Add a task to `:turns`. Returns false if it was there already.
function ARRAYS.wait_for_turn(array, place)
  ARRAYS.touch(array)
  return redis.call('ZADD', ARRAYS.key(array) .. ':turns', 'NX', int(place), int(place)) == 1
end

local function end_array(head, row)
  local outcome, status = {}, 'done'
  if row.failed + row.skipped > 0 then
    status = 'failed'
    outcome.reason = 'upstream'
    outcome.error = int(row.failed + row.skipped) .. ' of ' .. int(row.size) .. ' tasks have not succeeded'
  end
  if TIMERS.expired_at(head) and not head.cancel_requested_at then
    status, outcome = 'failed', { reason = 'expired', error = 'expired: not done by its deadline' }
  elseif head.reason == 'expired' then -- no task started in time
    status, outcome = 'cancelled', { reason = 'expired', error = 'expired: not started in time' }
  elseif head.cancel_requested_at or status == 'done' and row.cancelled > 0 then
    status, outcome = 'cancelled', { reason = 'cancelled' }
  end
  ENDS.end_job(head, status, outcome)
end

-- Reopen an array because one of its tasks runs again.
local function reopen_array(head)
  redis.call('HSET', job_key(head.id), 'status', 'blocked', 'run', int(head.run + 1))
  redis.call('HDEL', job_key(head.id), 'finished_at', 'reason', 'error', 'caused_by', 'cancelled_with', 'cancel_requested_at')
  move(head, 'blocked')
  ENDS.push_propagate(head)
end

-- Bring an array to the state that its tasks require. Returns whether anything moved.
local function settle_array(array)
  local head, row = read(array), ARRAYS.row(array)
  if not head or row.size == 0 or row.walk then -- during a walk: settle the array when the walk has visited all tasks
    return false
  end
  local over = row.ended >= row.size and row.turns == 0
  if over ~= (TERMINAL[head.status] or false) then
    if over then
      end_array(head, row)
    else
      reopen_array(head)
      ARRAYS.touch(array) -- tasks may wait in `:turns`
    end
    return true
  end
  return not over and row.started and make_tasks(head, row)
end

AFTER_FLUSH[#AFTER_FLUSH + 1] = function()
  local arrays, moved = touched, false
  touched = {}
  for _, array in ipairs(arrays) do
    local ok, has_moved = pcall(settle_array, array)
    if not ok then
      quarantine(array)
    end
    moved = ok and has_moved or moved
  end
  return moved
end

-- End the tasks that were not created, together with their array.
local function drop_rest(head, as)
  local row = ARRAYS.row(head.id)
  local rest = row.size - row.made - redis.call('SCARD', ARRAYS.key(head.id) .. ':skip')
  if rest > 0 then
    redis.call('HSET', ARRAYS.key(head.id), 'made', int(row.size), 'dropped', int(rest), 'dropped_as', as,
      'dropped_from', int(row.made))
    FOLLOWS.note(head.id, '*')
    count(ARRAYS.key(head.id), as, rest)
    count(queue_key(head.queue), 'reserved', -rest)
  end
end

local function restore_rest(head)
  local number, as, made = unpack(redis.call('HMGET', ARRAYS.key(head.id), 'dropped', 'dropped_as', 'dropped_from'))
  if number and as and made then
    redis.call('HSET', ARRAYS.key(head.id), 'made', made)
    redis.call('HDEL', ARRAYS.key(head.id), 'dropped', 'dropped_as', 'dropped_from')
    count(ARRAYS.key(head.id), as, -tonumber(number))
    count(queue_key(head.queue), 'reserved', tonumber(number))
  end
end

function HOOKS.array(head, from, to)
  local key = ARRAYS.key(head.id)
  if not from then
    redis.call('HSET', key, 'size', head.array_size, 'made', '0')
    if head.array_parallel then
      redis.call('HSET', key, 'parallel', head.array_parallel)
    end
    if head.array_follows then
      redis.call('HSET', key, 'follows', head.array_follows, 'follows_when', head.array_follows_when or ARRAYS.WHEN)
      FOLLOWS.register(head.array_follows, head.id)
    end
    count(queue_key(head.queue), 'reserved', tonumber(head.array_size))
  elseif from == 'skipped' or head.restarted then
    restore_rest(head)
  end
  if TERMINAL[from] then
    redis.call('HDEL', key, 'begun') -- no attempt has begun in this run
  end
  if to == 'pending' then -- the array starts
    redis.call('HSET', job_key(head.id), 'status', 'blocked')
    redis.call('HSET', key, 'started', '1')
    if head.array_follows then
      FOLLOWS.start(head)
    end
    ARRAYS.touch(head.id)
    return 'blocked'
  elseif TERMINAL[to] then
    drop_rest(head, to == 'skipped' and 'skipped' or 'cancelled')
  end
end

function HOOKS.task(task, from, to)
  local array = task.array
  if array then
    if TERMINAL[to] then
      FOLLOWS.note_task(task)
    end
    if from then
      count(ARRAYS.key(array), from, -1)
    end
    count(ARRAYS.key(array), to, 1)
    if to == 'running' then
      count(ARRAYS.key(array), 'begun', 1)
    end
    ARRAYS.touch(array)
  end
end

-- Cancel all tasks of a started array: at once if they are not created yet, the
-- others step by step (see array_advance).
function ARRAYS.stop(head)
  redis.call('UNLINK', ARRAYS.key(head.id) .. ':turns')
  drop_rest(head, 'cancelled')
  redis.call('HSET', ARRAYS.key(head.id), 'walk', 'cancel', 'walk_at', '0')
  ARRAYS.work_on(head.id)
  append(moves, 'cancelling', head.id)
  ARRAYS.touch(head.id)
end

function ARRAYS.is_array(job)
  return has_hook(job.hooks, 'array')
end

-- Return the job whose end or rerun decides for `job`: the array of a task, otherwise the job itself.
function ARRAYS.head_of(job)
  return job.hooks and job.array and read(job.array) or job
end

end
