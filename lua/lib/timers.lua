-- timers: the times by which a job has to start (`expires`) or end (`deadline`), and
-- by which a stopped command has to exit.
-- uses: formats
--
-- A job with such a time has the hook `timers`. Its hash has `deadline_at` and `expires_at` (ms). If a duration was
-- given, it also has `deadline_ms` and `expires_ms`, and the time is computed when the job arrives. While the timer can
-- still fire, `due` has the member `deadline <id>` or `expires <id>` (see expiry).

local TIMERS = { DUE = P .. 'due' }

do

local function set_timer(job, kind, at)
  index(TIMERS.DUE, FORMATS.timer(kind, job.id), at)
  if not soonest_at or at < soonest_at then
    soonest_queue, soonest_at = job.queue, at
  end
end

-- A duration counts from `since`, and restarts with a retry. A fixed time stays, but
-- one in the past does not block a retry.
local function arm(job, kind, length_ms, at, since, again)
  local field = kind .. '_at'
  length_ms, at = tonumber(length_ms or ''), tonumber(at or '')
  if length_ms then
    at = since + length_ms
    redis.call('HSET', job_key(job.id), field, int(at))
  elseif at and again and at <= NOW then
    redis.call('HDEL', job_key(job.id), field)
    return
  end
  if at then
    set_timer(job, kind, at)
  end
end

local function arm_all(job, again)
  local key = job_key(job.id)
  local row = redis.call('HMGET', key, 'deadline_ms', 'deadline_at', 'expires_ms', 'expires_at', 'created_at')
  local since = again and NOW or tonumber(row[5])
  if again then
    redis.call('HDEL', key, 'expired_at')
  end
  arm(job, 'deadline', row[1], row[2], since, again)
  arm(job, 'expires', row[3], row[4], since, again)
end

-- Set `expires` again if the only attempt was given back unfinished: the job has not started yet.
local function arm_unstarted(job)
  local row = redis.call('HMGET', job_key(job.id), 'attempts', 'expires_at')
  if row[1] == '0' and row[2] then
    set_timer(job, 'expires', tonumber(row[2]))
  end
end

function HOOKS.timers(job, from, to)
  if TERMINAL[to] then
    index(TIMERS.DUE, FORMATS.timer('deadline', job.id), false)
    index(TIMERS.DUE, FORMATS.timer('expires', job.id), false)
  elseif to == 'running' then
    index(TIMERS.DUE, FORMATS.timer('expires', job.id), false)
  elseif from == 'running' then
    arm_unstarted(job)
  elseif not from or TERMINAL[from] then
    arm_all(job, from)
  end
end

-- Return when the deadline passed while the job ran, so that it is being stopped; false if it did not.
function TIMERS.expired_at(job)
  return has_hook(job.hooks, 'timers') and job.expired_at
end

-- Return which event came first (each may be missing): the attempt's `timeout`, or that its job was `cancelled` or
-- `expired`. Also return when its command has to be gone, `stop_ms` later. nil: it may continue.
function TIMERS.must_stop(stop_ms, timeout_at, cancelled_at, overrun_at)
  local why, since = timeout_at and 'timeout', timeout_at
  if cancelled_at and not (since and since <= cancelled_at) then
    why, since = 'cancelled', cancelled_at
  end
  if overrun_at and not (since and since <= overrun_at) then
    why, since = 'expired', overrun_at
  end
  return why, since and since + stop_ms
end

end
