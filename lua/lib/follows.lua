-- follows: arrays whose tasks follow the tasks of another array with the same index (`matching`).
-- uses: timers ends arrays
--
-- array:<array>:followers (LIST) has the ids of the followers. The end of a task is only recorded: its index goes to
-- `:ended` (LIST), where `*` means all indexes. While this list has entries, `follow:<array>` is in `propagate`, and
-- the walk handles them: it applies the first index to one follower after the other. `follow_at` in array:<array> is
-- the position of the next follower. The followed task's present status decides about a follower's task, so a visit may
-- be repeated. A follower that starts after tasks have ended visits them by its own `walk` (see array_advance).

do

local STEP, COST = 100, 5 -- a visit creates a task, which costs as much as this many edges
local is_followed, followed_arrays = {}, {} -- in this call: array → whether it is followed; array → its data

function FOLLOWS.register(array, follower)
  if read(array) then -- otherwise it was deleted while the follower's submission was staged
    is_followed[array] = true
    redis.call('RPUSH', ARRAYS.key(array) .. ':followers', follower)
  end
end

-- Return up to `number` followers of an array, from position `from` on.
function FOLLOWS.some(array, from, number)
  return redis.call('LRANGE', ARRAYS.key(array) .. ':followers', int(from), int(from + number - 1))
end

local function has_followers_now(array)
  if is_followed[array] == nil then
    is_followed[array] = redis.call('EXISTS', ARRAYS.key(array) .. ':followers') == 1
  end
  return is_followed[array]
end

-- Record that a task has ended, by its index; `*` stands for all tasks that are not created.
function FOLLOWS.note(array, place)
  if has_followers_now(array) and redis.pcall('RPUSH', ARRAYS.key(array) .. ':ended', place) == 1 then
    redis.pcall('RPUSH', P .. 'propagate', 'follow:' .. array)
  end
end

function FOLLOWS.note_task(task)
  if has_followers_now(task.array) then -- otherwise its index need not be read
    FOLLOWS.note(task.array, task.index)
  end
end

-- Return the array's job and row. They may be as old as the start of this call.
local function about(array)
  if not followed_arrays[array] then
    followed_arrays[array] = { head = read(array), row = ARRAYS.row(array) }
  end
  return followed_arrays[array]
end

-- Return the status of a followed task, nil if it is not created yet.
local function status_of(array, place)
  local other = about(array)
  if not other.head then
    return 'cancelled' -- the array was deleted
  end
  local task = read(ARRAYS.task_id(other.head, place))
  if task then
    return task.status
  end
  local gone = place < other.row.prefix or other.row.dropped_from
    or redis.call('SISMEMBER', ARRAYS.key(array) .. ':skip', int(place)) == 1
  return ARRAYS.was_done(array, place) and 'done' or gone and 'cancelled' or nil
end

-- Apply the end of a task to the task that follows it: start it or skip it.
local function follow(follower, place, status)
  local head = read(follower)
  if not head or head.cancel_requested_at or TIMERS.expired_at(head) then
    return
  end
  local started, dropped, deleted, parallel, when = unpack(
    redis.call('HMGET', ARRAYS.key(follower), 'started', 'dropped', 'deleted', 'parallel', 'follows_when'))
  if not started or deleted then
    return
  end
  when = when or ARRAYS.WHEN
  local task, fits = read(ARRAYS.task_id(head, place)), when == 'finished' or when == status
  local new = not task and not dropped and not ARRAYS.was_done(follower, place)
    and redis.call('SISMEMBER', ARRAYS.key(follower) .. ':skip', int(place)) == 0
  if new and not fits then
    local error = 'skipped: task ' .. int(place) .. ' of the array that it follows ended ' .. status
    ARRAYS.make_following(head, place, 'skipped', { 'finished_at', NOW_TEXT, 'reason', 'upstream', 'error', error })
  elseif fits and (new or task and task.status == 'skipped') then
    if parallel then
      ARRAYS.wait_for_turn(follower, place)
    elseif new then
      ARRAYS.make_following(head, place)
    else
      ENDS.start_again(task)
    end
  end
end

-- Visit all tasks of a follower and bring each to what its followed task requires. A `cancel` walk has priority.
-- `retried` keeps the index up to which a retry has come, so that the retry visits no task twice.
function FOLLOWS.all(follower)
  local what, place, retried = unpack(redis.call('HMGET', ARRAYS.key(follower), 'walk', 'walk_at', 'retried'))
  if what == 'retry' then
    retried = math.max(tonumber(place or '') or 0, tonumber(retried or '') or 0)
    redis.call('HSET', ARRAYS.key(follower), 'retried', int(retried))
  end
  if what ~= 'cancel' then
    redis.call('HSET', ARRAYS.key(follower), 'walk', what or 'follow', 'walk_at', '0')
  end
  ARRAYS.work_on(follower)
end

-- Start an array that follows another one: visit the tasks that have ended by now.
function FOLLOWS.start(head)
  local followed = head.array_follows
  local ended, new = ARRAYS.row(followed).ended, counts[ARRAYS.key(followed)] or {}
  for status in pairs(TERMINAL) do
    ended = ended + (new[status] or 0)
  end
  if ended > 0 or not read(followed) then
    FOLLOWS.all(head.id)
  end
end

-- Whether a follower waits in vain: the followed array has ended, and no end of its tasks is left to apply.
function FOLLOWS.has_forgotten(row)
  local followed = row.follows and row.started and not row.walk and row.waiting + row.running + row.turns == 0
    and row.ended < row.size and row.follows
  local other = followed and read(followed)
  return followed and not (other and (not TERMINAL[other.status] or redis.call('EXISTS', ARRAYS.key(followed) .. ':ended') == 1))
end

-- Apply to a task what has happened to the task that it follows.
function FOLLOWS.catch_up(head, row, place)
  local status = status_of(row.follows, place)
  if status and TERMINAL[status] then
    follow(head.id, place, status)
  end
end

-- Apply the end of an index to a follower.
local function tell(follower, place, status)
  if place ~= '*' then
    follow(follower, tonumber(place), status)
  elseif read(follower) then
    FOLLOWS.all(follower)
  end
end

local function is_still_ended(array, place)
  local status = place == '*' and 'cancelled' or tonumber(place) and status_of(array, tonumber(place))
  return TERMINAL[status or ''] and status
end

-- Apply ended tasks to the next followers of an array; returns how much was done, and whether that was all.
function WALKS.follow(array, budget)
  local key, most = ARRAYS.key(array), math.max(1, math.floor(math.min(budget, STEP) / COST))
  local left = most
  followed_arrays[array] = nil
  local head = about(array).head
  if head and ENDS.is_cascading(head) then -- visiting them would skip jobs that the cascade has to cancel
    return (WALKS.cascade(array, budget)), false
  end
  while left > 0 do -- bound: `left` falls with each turn
    local place = redis.call('LINDEX', key .. ':ended', '0')
    if not place then
      return (most - left) * COST, true
    end
    local from = tonumber(redis.call('HGET', key, 'follow_at') or '') or 0
    local status = is_still_ended(array, place)
    local some = status and FOLLOWS.some(array, from, left) or {}
    for _, follower in ipairs(some) do
      if not pcall(tell, follower, place, status) then
        quarantine(follower)
      end
    end
    if #some == left then
      redis.call('HSET', key, 'follow_at', int(from + #some))
    else
      redis.call('LPOP', key .. ':ended')
      redis.call('HDEL', key, 'follow_at')
    end
    left = left - math.max(1, #some)
  end
  return most * COST, redis.call('EXISTS', key .. ':ended') == 0
end

end
