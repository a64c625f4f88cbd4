-- attempt_claim: move up to `limit` pending jobs to running, leased to one worker.
-- uses: claims
--
-- ARGV[1]  worker    name of the worker
-- ARGV[2]  request   `<incarnation>:<counter>`; the counter grows after a request that got claims; a repeat gets
--                    the same claims, with a new lease
-- ARGV[3]  queues    names separated by spaces, most preferred first
-- ARGV[4]  limit     most jobs to claim, 0..150; 0 ends the request: it is unparked, and its claims are given back
-- ARGV[5]  lease_ms  duration of the lease, ms
-- ARGV[6]  floor     highest fence that the caller has seen
-- ARGV[7]  park_ms   how long to park the request if it finds nothing, ms; 0: do not park it
-- ARGV[8]  inbox     name of the list that gets the worker's name when a parked request may find something
-- ARGV[9]  begins    1: the worker reports when the command of a poison job starts (see attempt_begin); 0: it does not
--
-- Returns {"CLAIMED" | "EMPTY" | "PARKED" | "MORE" | "STALE", next_due_ms, claim, …}; next_due_ms -1: nothing is
-- scheduled
-- claim: {id, fence, attempt, queue, more, field …}, the fields in the order of lib/job_fields

local word, claims, due_ms = CLAIMS.answer({
  worker = ARGV[1],
  request = ARGV[2],
  queues = ARGV[3],
  limit = tonumber(ARGV[4]),
  lease_ms = ARGV[5],
  floor = tonumber(ARGV[6]),
  park_ms = tonumber(ARGV[7]),
  inbox = ARGV[8],
  begins = ARGV[9] == '1',
})
return { word, due_ms, unpack(claims) }
