-- attempt_finish: record how attempts ended, free their leases, and claim more in the same call.
-- uses: formats ends edges expiry claims outputs retries unfenced
--
-- A result counts only with the fence of the running attempt. A worker that lost the lease changes nothing.
--
-- ARGV[1]  worker        name of the worker
-- ARGV[2]  request       claim request (see attempt_claim), '' to claim nothing
-- ARGV[3]  queues        names separated by spaces, most preferred first
-- ARGV[4]  limit         most jobs to claim, 0..150; 0 ends the request (see attempt_claim)
-- ARGV[5]  lease_ms      duration of the lease, ms
-- ARGV[6]  floor         highest fence that the caller has seen
-- ARGV[7]  park_ms       how long to park the request if it finds nothing, ms; 0: do not park it
-- ARGV[8]  inbox         name of the list that wakes a parked worker (see attempt_claim)
-- ARGV[9]  begins        1: the worker reports when the command of a poison job starts; 0: it does not
-- ARGV[10]  retry_ms     delay before the second attempt, ms, of jobs without a delay of their own (see lib/retries)
-- ARGV[11]  retry_max_ms  longest delay between two attempts, ms, of such jobs
-- ARGV[12]  successes    id, fence, id, fence … of attempts that succeeded without output, separated by spaces;
--                        a fence may also be `safe` or `always`: see lib/unfenced
-- ARGV[13..]  results    id, fence, reason ('' for success), exit_code, signal, error, jitter (0..1),
--                        output offset ('' for none), output total, output data, retry_after (delay that the job
--                        requested, ms, '' for none), result (JSON, '' for none), progress ('' for none)
--
-- Returns {word of the claim (see attempt_claim) | "NONE", next_due_ms, propagate, results, claim, …}
-- propagate: 1 if edges are left to visit
-- results: {{"ACCEPTED" | "RECORDED" | "LOST" | "UNKNOWN" | "BROKEN", status}, …}, the successes first

local asked = {
  worker = ARGV[1],
  request = ARGV[2],
  queues = ARGV[3],
  limit = tonumber(ARGV[4]),
  lease_ms = ARGV[5],
  floor = tonumber(ARGV[6]),
  park_ms = tonumber(ARGV[7]),
  inbox = ARGV[8],
  begins = ARGV[9] == '1',
}
local retry_ms, retry_max_ms = tonumber(ARGV[10]), tonumber(ARGV[11])
local successes = ARGV[12]
local WIDTH, MOST_EDGES = 13, 200

-- Accept an attempt's outcome if its fence is current. `write` then stores its last output.
local function finish(id, fence, outcome, jitter, write)
  fence = UNFENCED.meant_fence(id, fence)
  local job = read(id)
  if not job then
    return { 'UNKNOWN', '' }
  end
  if job.status ~= 'running' or job.fence ~= fence then
    if job.fence == fence then -- the job has ended: a waiting job has no fence
      return { 'RECORDED', job.status }
    end
    if job.ended_fence == fence then
      return { 'RECORDED', job.ended_as }
    end
    return { 'LOST', job.status }
  end
  if write then
    write(fence)
  end
  outcome.fence = fence
  local wait = outcome.reason and RETRIES.wait_after(job, outcome, retry_ms, retry_max_ms, jitter)
  return { 'ACCEPTED', ENDS.conclude(job, outcome, wait) }
end

local function finish_safely(id, ...)
  local ok, result = pcall(finish, id, ...)
  if not ok then
    quarantine(id)
    return { 'BROKEN', '' }
  end
  return result
end

-- A full server stores the result without the last output.
local function finish_in_full(at)
  local id, fence, reason = ARGV[at], ARGV[at + 1], ARGV[at + 2] ~= '' and ARGV[at + 2] or nil
  local outcome = {
    reason = reason,
    exit_code = ARGV[at + 3],
    signal = ARGV[at + 4],
    error = ARGV[at + 5],
    retry_after_ms = tonumber(ARGV[at + 10]),
    result = ARGV[at + 11],
    progress = ARGV[at + 12],
  }
  local offset, total, data = ARGV[at + 7], ARGV[at + 8], ARGV[at + 9]
  return finish_safely(id, fence, outcome, tonumber(ARGV[at + 6]), offset ~= '' and function(running)
    if redis.call('HGET', KEYS[1], 'full') then
      OUTPUTS.leave_out(id, running, total)
    else
      OUTPUTS.write(id, running, offset, total, data)
    end
  end)
end

local results = {}
for id, fence in FORMATS.read_attempts(successes) do
  results[#results + 1] = finish_safely(id, fence, { exit_code = '0' })
end
for at = 13, #ARGV, WIDTH do
  results[#results + 1] = finish_in_full(at)
end
flush()
local propagating = EDGES.propagate(MOST_EDGES)
flush()
local word, claims, due_ms = 'NONE', {}, -1
if asked.request ~= '' then
  word, claims, due_ms = CLAIMS.answer(asked)
end
return { word, due_ms, (propagating or EXPIRY.ended_here) and 1 or 0, results, unpack(claims) }
