-- attempt_claim: move up to `limit` pending jobs to running, leased to one worker.
-- uses: claims
--
-- ARGV[1]  worker    name of the worker
-- ARGV[2]  request   `<incarnation>:<counter>`, growing once it has got claims: a repeat gets the same, with a new lease
-- ARGV[3]  queues    names with spaces between, the first one first
-- ARGV[4]  limit     most jobs to claim, 0..150; 0: end the request: park no longer, and give back what it has got
-- ARGV[5]  lease_ms  length of the lease, ms
-- ARGV[6]  floor     highest fence that the caller has seen
-- ARGV[7]  park_ms   when nothing is there: keep the request for so long, ms; 0: don't
-- ARGV[8]  inbox     name of the list that gets the worker's name when a parked request may find something
-- ARGV[9]  begins    1: the worker says when the command of a suspect begins (see attempt_begin), 0: it does not
--
-- Returns {"CLAIMED" | "EMPTY" | "PARKED" | "MORE" | "STALE", next_due_ms, claim, …}; next_due_ms -1: none is scheduled
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
