-- promote: make scheduled jobs pending whose time has come, and wake workers where work waits and nobody was told.
-- uses: core unique ends arrays claims
--
-- ARGV[1]  limit     most jobs to promote, 1..200
-- ARGV[2..]  queues  names of queues to look at for a lost wake-up
--
-- Returns {"PROMOTED", more, next_due_ms}; more: 1 when due jobs are left; next_due_ms -1: none is scheduled

local limit = tonumber(ARGV[1])

local more = promote(limit)
flush()
for at = 2, #ARGV do
  hint_left(ARGV[at])
end
return { 'PROMOTED', more and 1 or 0, next_due_ms() }
