-- maintain_promote: make scheduled jobs pending whose time has come, act on timers that have come, and wake workers where work
-- waits and nobody was told.
-- uses: queues edges expiry claims
--
-- ARGV[1]  limit     most jobs and timers to act on, 1..200
-- ARGV[2..]  queues  names of queues to look at for a lost wake-up
--
-- Returns {"PROMOTED", more, next_due_ms}; more: 1 when some are left that are due; next_due_ms
-- -1: there are no others

local limit = tonumber(ARGV[1])
local EDGES = 100
local WAKES = 10 -- most workers that are woken in one queue while nobody listens to the inbox of the one before

local more = CLAIMS.promote(limit)
flush()
if EXPIRY.ended_here then -- further edges are visited by the reaper's next step
  propagate(EDGES)
  flush()
end
for at = 2, #ARGV do
  for _ = 1, WAKES do
    local ok, unheard = pcall(CLAIMS.hint_left, ARGV[at]) -- one that is damaged holds up nobody
    if not ok or type(unheard) ~= 'number' or unheard < 2 then
      break
    end
  end
  QUEUES.forget_if_none_pending(ARGV[at])
end
return { 'PROMOTED', more and 1 or 0, CLAIMS.next_due_ms() }
