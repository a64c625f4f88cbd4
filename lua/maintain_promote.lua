-- maintain_promote: make due jobs pending, act on due timers, and wake workers of queues where a wake-up was lost.
-- uses: queues edges expiry claims
--
-- ARGV[1]  limit     most jobs and timers to act on, 1..200
-- ARGV[2..]  queues  names of queues to check for a lost wake-up
--
-- Returns {"PROMOTED", more, next_due_ms}; more: 1 if due jobs or timers are left; next_due_ms -1: nothing is scheduled

local limit = tonumber(ARGV[1])
local MOST_EDGES = 100
local WAKES = 10 -- most workers woken in one queue: another is woken only if no process reads the last one's inbox

local more = CLAIMS.promote(limit)
flush()
if EXPIRY.ended_here then -- the reaper's next step visits further edges
  EDGES.propagate(MOST_EDGES)
  flush()
end
local parked = {} -- most queues have no parked worker: one command tells
for at = 2, #ARGV do
  parked[at - 1] = queue_key(ARGV[at]) .. ':parked'
end
local any_parked = parked[1] and redis.call('EXISTS', unpack(parked)) > 0
for at = 2, #ARGV do
  local waits
  for _ = 1, any_parked and WAKES or 0 do
    local ok, unheard, found = pcall(CLAIMS.hint_left, ARGV[at]) -- a damaged queue must not stop the others
    waits = ok and found
    if not ok or type(unheard) ~= 'number' or unheard < 2 then
      break
    end
  end
  if not waits then
    QUEUES.forget_if_none_pending(ARGV[at])
  end
end
return { 'PROMOTED', more and 1 or 0, CLAIMS.next_due_ms() }
