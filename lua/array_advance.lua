-- array_advance: continue an array: make the tasks that may start now, and apply a cancel or retry of all to each task.
-- uses: edges arrays tasks
--
-- ARGV[1]  id     of the array's job
-- ARGV[2]  limit  most tasks to look at, 1..100
--
-- Returns {"MORE"}, {"SETTLED"} if nothing is left to do now, or {"UNKNOWN"}

local id, limit = ARGV[1], tonumber(ARGV[2])
local MOST_EDGES = 200

local head = read(id)
redis.pcall('ZREM', P .. 'arrays', id) -- it is added again, behind the others, if there is more to do
if not visible(head) then
  return { 'UNKNOWN' }
end

-- Visit the next tasks; returns whether tasks are left. A visit may make a task, which costs more than a look.
local function walk(row)
  local what, place = row.walk, row.walk_at
  local made = tonumber(row.dropped_from or row.made)
  made = row.follows and row.size or made
  local retried = tonumber(redis.call('HGET', ARRAYS.key(id), 'retried') or '') or 0
  local behind = math.min(place + limit, made)
  for at = place, behind - 1 do
    if what == 'cancel' then
      TASKS.cancel(head, row, at)
    elseif what == 'retry' and at >= retried then
      TASKS.retry(head, row, at)
    end
    if row.follows and what ~= 'cancel' then
      FOLLOWS.catch_up(head, row, at)
    end
  end
  if behind >= made then
    redis.call('HDEL', ARRAYS.key(id), 'walk', 'walk_at', 'retried')
    return false
  end
  redis.call('HSET', ARRAYS.key(id), 'walk_at', int(behind))
  return true
end

local function go_on()
  local row = ARRAYS.row(id)
  if row.walk and walk(row) then
    ARRAYS.work_on(id)
  end
end

if not pcall(go_on) then
  quarantine(id)
end
ARRAYS.touch(id)
flush()
local propagating = EDGES.propagate(MOST_EDGES)
flush()
return { (propagating or redis.call('ZSCORE', P .. 'arrays', id)) and 'MORE' or 'SETTLED' }
