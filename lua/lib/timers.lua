-- timers: moments by which a job has to have started (`expires`) or ended (`deadline`), and those by which a command that
-- uses: formats
-- is being stopped has to be gone.
--
-- A job with such a moment has the hook `timers`. Its hash has `deadline_at` and `expires_at` (ms); where a duration
-- was given, also `deadline_ms` and `expires_ms`, and the moment is made when the job arrives. While it can still come,
-- `due` has the member `deadline <id>` or `expires <id>` (see expiry).

local TIMERS = { DUE = P .. 'due' }

do

local function set_timer(job, kind, at)
  index(TIMERS.DUE, FORMATS.timer(kind, job.id), at)
  if not soonest_at or at < soonest_at then
    soonest_queue, soonest_at = job.queue, at
  end
end

-- A duration counts from `since`, again if it was retried; a moment stays, but does not hold up a retry after it.
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

-- An attempt that was given back unfinished does not count: its job has yet to start.
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

-- When the deadline of a job passed while it ran, so that it is being stopped; false if it did not.
function TIMERS.expired_at(job)
  return has_hook(job.hooks, 'timers') and job.expired_at
end

-- Which of these moments comes first (each may be missing): an attempt's `timeout`, or that its job was `cancelled` or
-- `expired`; and by when, `stop_ms` later, its command has to be gone. nil where it may run on.
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
