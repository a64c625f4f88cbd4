-- ends: the single path by which every attempt and every job ends.
-- uses: formats timers

-- Walks by the word in front of their entries in `propagate` (see edges). Each function gets the rest of the entry and
-- a budget. It returns how much it did, and whether the walk is finished.
local WALKS = {}

local ENDS = {
  REFUNDS = 10, -- most attempts of a run that are refunded
  SHORT_LIST = 10000, SHORT_LIST_OF_MANY = 100, -- longest lists that are searched: for one job; for many
}

do

-- Make the walk visit the edges of a job again, from the first one.
function ENDS.push_propagate(job)
  if not job.children then
    return
  end
  if not job.edge_cursor then
    redis.pcall('RPUSH', P .. 'propagate', job.id)
  end
  job.edge_cursor = 0
  redis.call('HSET', job_key(job.id), 'edge_cursor', '0')
end

-- Whether a cancel still has to continue from a job to its dependents (see workflows).
function ENDS.is_cascading(job)
  return (job.children or job.hooks) and job.cascade_at
end

-- The fields that describe how the last attempt ended.
local OUTCOME = { 'reason', 'exit_code', 'signal', 'error', 'caused_by', 'result' }

-- Write fields and an outcome; returns the names of the outcome's empty fields.
local function write_outcome(key, fields, outcome)
  local clear, last = {}, #fields
  for i = 1, #OUTCOME do
    local name = OUTCOME[i]
    local value = outcome[name]
    if value and value ~= '' then
      fields[last + 1], fields[last + 2] = name, value
      last = last + 2
    else
      clear[#clear + 1] = name
    end
  end
  redis.call('HSET', key, unpack(fields, 1, last))
  return clear
end

-- End a job: record it, release what it holds, and queue a visit of its dependents.
--
-- `outcome.fence` is kept only if an attempt's own result was accepted. A repeat of that result is answered from it.
function ENDS.end_job(job, status, outcome)
  local key = job_key(job.id)
  local stale = job.reason and true
  if job.batch then -- not admitted: its hooks have not been called, but a rerun expects that
    call_hooks(job, nil, 'blocked')
  end
  local fields = { 'status', status, 'finished_at', NOW_TEXT }
  if outcome.progress and outcome.progress ~= '' then
    fields[5], fields[6] = 'progress', outcome.progress
  end
  local clear = write_outcome(key, fields, outcome)
  if job.fence and not outcome.fence then
    clear[#clear + 1] = 'fence'
    stale = true
  end
  if job.batch then
    clear[#clear + 1] = 'batch'
    stale = true
  end
  if stale then
    redis.call('HDEL', key, unpack(clear))
  end
  move(job, status)
  job.batch = nil
  job.reason = outcome.reason
  ENDS.push_propagate(job)
end

-- Requeue the job of a failed or lost attempt: at once, or after `delay_ms`.
local function requeue(job, delay_ms, outcome)
  local key = job_key(job.id)
  local status = delay_ms and 'scheduled' or 'pending'
  local fields = { 'status', status }
  if delay_ms then
    job.run_at = NOW + delay_ms
    for _, value in ipairs({ 'run_at', int(job.run_at), 'wait_ms', int(delay_ms) }) do
      fields[#fields + 1] = value
    end
  end
  if outcome.fence then
    for _, value in ipairs({ 'ended_fence', outcome.fence, 'ended_as', status }) do
      fields[#fields + 1] = value
    end
  end
  local clear = write_outcome(key, fields, outcome)
  for _, name in ipairs({ 'fence', 'worker', 'progress', 'waits' }) do
    clear[#clear + 1] = name
  end
  redis.call('HDEL', key, unpack(clear))
  move(job, status, not delay_ms)
  job.reason = outcome.reason
end

-- Decide what an ended attempt means for its job: done, another attempt, or the end. Returns the new status.
--
-- After an accepted cancel every end is `cancelled`; after a missed deadline it is `failed`. A lost attempt is requeued
-- at once, a failed one after `delay_ms`. `outcome.final` rules out another attempt.
function ENDS.conclude(job, outcome, delay_ms)
  if job.cancel_requested_at then
    outcome.reason = 'cancelled'
    ENDS.end_job(job, 'cancelled', outcome)
  elseif TIMERS.expired_at(job) then
    local error = outcome.error or ''
    local first, rest = string.match(error, '^([^\n]*)\n?(.*)$')
    if first == 'cancelled' and outcome.reason == first then -- only reports that its worker was asked to stop it
      error = rest
    end
    outcome.reason, outcome.error = 'expired', 'expired: not done by its deadline' .. (error ~= '' and '\n' .. error or '')
    ENDS.end_job(job, 'failed', outcome)
  elseif not outcome.reason then
    ENDS.end_job(job, 'done', outcome)
  elseif outcome.final or job.attempts >= job.max_attempts then
    ENDS.end_job(job, 'failed', outcome)
  else
    requeue(job, outcome.reason ~= 'worker_lost' and delay_ms or nil, outcome)
  end
  return job.status
end

-- Give back the job of a running attempt, unfinished, to the head of its list, and refund the attempt (up to REFUNDS
-- times). Returns the job's status, or nil if this attempt no longer holds the lease.
function ENDS.give_back(id, fence)
  local job = read(id)
  if not job or job.status ~= 'running' or job.fence ~= fence then
    return nil
  end
  if job.cancel_requested_at or TIMERS.expired_at(job) then
    return ENDS.conclude(job, { fence = fence, reason = 'cancelled' })
  end
  local key = job_key(id)
  if redis.call('HINCRBY', key, 'releases', '1') <= ENDS.REFUNDS then
    redis.call('HSET', key, 'attempts', int(job.attempts - 1))
  end
  redis.call('HSET', key, 'status', 'pending')
  redis.call('HDEL', key, 'fence', 'worker', 'started_at', 'progress', 'waits')
  move(job, 'pending', true)
  return 'pending'
end

-- Remove a pending job from its list. In a long list the id stays, and the claim drops it. In a short list it is
-- removed: otherwise the job would get its old position back if it became pending again.
function ENDS.leave_list(job, longest)
  local list = queue_key(job.queue) .. ':pending:' .. job.priority
  local new = pushes[list] or {}
  for at = #new, 1, -1 do
    if new[at] == job.id then
      table.remove(new, at)
    end
  end
  if redis.call('LLEN', list) <= longest then
    redis.call('LREM', list, '1', job.id)
  end
end

-- Cancel a job that has not ended. Returns whether a running command has to be stopped first. `by` gives
-- the reason if the job itself was not cancelled: `error`, and for jobs that are cancelled together
-- `caused_by` and `with` (see workflows).
function ENDS.cancel(job, by)
  if job.status == 'running' then
    if not job.cancel_requested_at then
      redis.call('HSET', job_key(job.id), 'cancel_requested_at', NOW_TEXT)
    end
    redis.call('PUBLISH', P .. 'cancels', FORMATS.stop(job.worker, job.id, job.fence))
    append(moves, 'cancelling', job.id)
    return true
  end
  if job.status == 'pending' then
    ENDS.leave_list(job, by and ENDS.SHORT_LIST_OF_MANY or ENDS.SHORT_LIST)
  end
  by = by or {}
  by.reason = 'cancelled'
  redis.call('HSET', job_key(job.id), 'cancel_requested_at', NOW_TEXT)
  if by.with then
    redis.call('HSET', job_key(job.id), 'cancelled_with', by.with)
  end
  ENDS.end_job(job, 'cancelled', by)
  return false
end

-- Start a new run of an ended job.
function ENDS.start_again(job)
  local key = job_key(job.id)
  local fields = { 'run', int(job.run + 1), 'attempts', '0' }
  if job.fence then -- a late repeat of the last result still gets its answer
    for _, value in ipairs({ 'ended_fence', job.fence, 'ended_as', job.status }) do
      fields[#fields + 1] = value
    end
  end
  redis.call('HSET', key, unpack(fields))
  redis.call('HDEL', key, 'reason', 'exit_code', 'signal', 'error', 'fence', 'worker', 'started_at', 'finished_at',
    'cancel_requested_at', 'releases', 'losses', 'waits', 'run_at', 'wait_ms', 'result', 'progress', 'caused_by', 'cancelled_with')
  job.run_at = nil
  job.restarted = true
  local waits = job.hooks and job.final or redis.call('EXISTS', key .. ':parents') == 1
  local status = waits and 'blocked' or 'pending'
  redis.call('HSET', key, 'status', status)
  move(job, status)
  ENDS.push_propagate(job)
end

end
