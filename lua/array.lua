-- array: go on with an array: make tasks that may start by now, and do with every one what was asked of all.
-- uses: core ends edges arrays
--
-- ARGV[1]  id     of the array's job
-- ARGV[2]  limit  most tasks to look at, 1..100
--
-- Returns {"MORE"}, {"SETTLED"} when there is nothing left to do now, or {"UNKNOWN"}

local id, limit = ARGV[1], tonumber(ARGV[2])
local EDGES = 200

local head = read(id)
if not visible(head) then
  redis.call('ZREM', P .. 'arrays', id)
  return { 'UNKNOWN' }
end

local function deal_with(task, what)
  if what == 'cancel' and not TERMINAL[task.status] then
    cancel(task)
  elseif what == 'retry' and (task.status == 'failed' or task.status == 'cancelled') then
    start_anew(task)
  end
end

-- Go over the next tasks; returns whether others are left.
local function walk(row)
  local what, place = string.match(row.walk, '^(%a+) (%d+)$')
  local dropped = tonumber(string.match(redis.call('HGET', array_key(id), 'dropped') or '0', '^%d+'))
  local behind = math.min(tonumber(place) + limit, row.made - dropped)
  for at = tonumber(place), behind - 1 do
    local task = read(task_id(head, at))
    if task then
      deal_with(task, what)
    end
  end
  local more = behind < row.made - dropped
  if more then
    redis.call('HSET', array_key(id), 'walk', what .. ' ' .. int(behind))
  else
    redis.call('HDEL', array_key(id), 'walk')
  end
  return more
end

redis.call('ZREM', P .. 'arrays', id)
local row = array_row(id)
if row.walk and walk(row) then
  work_on_array(id)
end
touched[id] = true
flush()
local propagating = propagate(EDGES)
flush()
if propagating then
  work_on_array(id)
end
return { redis.call('ZSCORE', P .. 'arrays', id) and 'MORE' or 'SETTLED' }
