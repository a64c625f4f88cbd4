-- claim: move up to `limit` pending jobs to running, leased to one worker.
-- uses: core claims
--
-- ARGV[1]  worker    name of the worker
-- ARGV[2]  request   `<incarnation>:<counter>`: a repeat gets the same claims
-- ARGV[3]  queues    names with spaces between, the first one first
-- ARGV[4]  limit     most jobs to claim, 1..150
-- ARGV[5]  lease_ms  length of the lease, ms
-- ARGV[6]  floor     highest fence that the caller has seen
-- ARGV[7]  remember  '1': the caller had a reply lost; remember an empty answer too
--
-- Returns {"CLAIMED" | "EMPTY" | "MORE" | "STALE", next_due_ms, claim, …}; next_due_ms -1: none is scheduled
-- claim: {id, fence, attempt, queue, command, argv, timeout_ms, env, cwd}

local worker, request, queues, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local lease_ms, floor, remember = ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1'

local word, claims, due_ms = claim_once(worker, request, queues, limit, lease_ms, floor, remember)
return { word, due_ms, unpack(claims) }
