-- history: detect that Redis has returned to an older state, by a restart or a failover.
--
-- In meta, `passes` grows with each pass of a reaper and `fence` with each claim. Reapers and workers send the
-- highest value that they have seen. If Redis has a lower one, it has lost calls that it had answered.
-- `rolled_back_at` (ms), `rolled_back` (the value seen and the value found) and `rollbacks` (how often) record
-- that, and the number continues from the value seen.

local HISTORY = {}

do

local ONE_ROLLBACK_MS = 60000 -- each reaper and worker notices the same rollback

function HISTORY.note_rollback(what, seen, found)
  local last = tonumber(redis.call('HGET', KEYS[1], 'rolled_back_at') or '') or 0
  if math.abs(NOW - last) > ONE_ROLLBACK_MS then
    redis.call('HINCRBY', KEYS[1], 'rollbacks', '1')
  end
  redis.call('HSET', KEYS[1], what, int(seen), 'rolled_back_at', NOW_TEXT, 'rolled_back', what .. ' ' .. int(seen) .. ' ' .. int(found))
end

local HIGHEST_FENCE = 2 ^ 52 -- near 2^53, numbers in Lua stop being exact integers

-- Return the fence before the next one. Fences only grow: never below the clock or
-- the highest that the caller has seen.
function HISTORY.last_fence(floor)
  local last = tonumber(meta_now()[1] or '') or 0 -- it may be damaged
  if last >= HIGHEST_FENCE then
    last = 0
  end
  floor = floor < HIGHEST_FENCE and floor or 0
  if floor > last then
    HISTORY.note_rollback('fence', floor, last)
    meta_now()[1] = int(floor)
  end
  return math.max(last, NOW - 1, floor)
end

end
