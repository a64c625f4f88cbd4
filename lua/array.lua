-- array: go on with an array: make tasks that may start by now, and do with every one what was asked of all.
-- uses: core timers unique slots concurrency ends edges arrays workflows tasks
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

-- Go over the next tasks; returns whether others are left.
local function walk(row)
  local what, place = string.match(row.walk, '^(%a+) (%d+)$')
  local made = tonumber(string.match(redis.call('HGET', array_key(id), 'dropped') or '', '%d+$') or row.made)
  made = row.follows and row.size or made
  local behind = math.min(tonumber(place) + limit, made)
  for at = tonumber(place), behind - 1 do
    if what == 'cancel' then
      cancel_task(head, row, at)
    elseif what == 'retry' then
      retry_task(head, row, at)
    end
    if row.follows and what ~= 'cancel' then
      catch_up(row, head, at)
    end
  end
  if behind >= made then
    redis.call('HDEL', array_key(id), 'walk')
    return false
  end
  redis.call('HSET', array_key(id), 'walk', what .. ' ' .. int(behind))
  return true
end

redis.call('ZREM', P .. 'arrays', id)
local row = array_row(id)
if row.walk and walk(row) then
  work_on_array(id)
end
touch(id)
flush()
local propagating = propagate(EDGES)
flush()
if propagating then
  work_on_array(id)
end
return { redis.call('ZSCORE', P .. 'arrays', id) and 'MORE' or 'SETTLED' }
