-- history: who remembers more than Redis does knows that Redis has gone back to an older state, by a restart or a failover.
--
-- meta: `beat` grows with each pass of a reaper, `fence` with each claim. Reapers and workers bring the highest that they
-- have seen. Where Redis has a lower one, calls that it had answered are undone: `rolled_back_at` (ms), `rolled_back` (what
-- was seen and what there is) and `rollbacks` (how often) tell of it, and the number goes on from what was seen.

local HISTORY = {}

do

local ONE_ROLLBACK_MS = 60000 -- each reaper and worker notices it by itself

function HISTORY.note_rollback(what, seen, found)
  local last = tonumber(redis.call('HGET', KEYS[1], 'rolled_back_at') or '') or 0
  if math.abs(NOW - last) > ONE_ROLLBACK_MS then
    redis.call('HINCRBY', KEYS[1], 'rollbacks', '1')
  end
  redis.call('HSET', KEYS[1], what, int(seen), 'rolled_back_at', NOW_TEXT, 'rolled_back', what .. ' ' .. int(seen) .. ' ' .. int(found))
end

local HIGHEST_FENCE = 2 ^ 52 -- behind that, numbers in Lua do not count one by one

-- The fence before the next one. Fences only grow: never below the clock nor what the caller has seen.
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
