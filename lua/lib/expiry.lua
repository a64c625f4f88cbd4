-- expiry: handle a job whose time has run out (see timers).
-- uses: formats timers ends arrays
--
-- A job that has not started by `expires` is cancelled. A job that has not ended by its deadline fails; if
-- it is running, it is first stopped like a cancelled one. Both get the reason `expired`. The times in the
-- hash decide, not the members of `due`.

local EXPIRY = { ended_here = false } -- true if a job has ended: its dependents have to be visited

do

-- End a waiting job. The result of its last attempt stays.
local function expire_waiting(job, status, what)
  local last = redis.call('HMGET', job_key(job.id), 'exit_code', 'signal', 'error')
  if job.status == 'pending' then
    ENDS.leave_list(job, ENDS.SHORT_LIST_OF_MANY)
  end
  local told = 'expired: ' .. what .. (last[3] and '\n' .. last[3] or '')
  ENDS.end_job(job, status, { reason = 'expired', exit_code = last[1], signal = last[2], error = told })
  EXPIRY.ended_here = true
end

local function stop_running(job)
  redis.call('HSET', job_key(job.id), 'expired_at', NOW_TEXT)
  if not job.cancel_requested_at then
    redis.call('PUBLISH', P .. 'cancels', FORMATS.stop(job.worker, job.id, job.fence))
    append(moves, 'expiring', job.id)
  end
end

-- The deadline of an array applies to the whole array; `expires` applies to the start of its first task.
local function ring_array(kind, head)
  if kind == 'deadline' and not head.expired_at then
    redis.call('HSET', job_key(head.id), 'expired_at', NOW_TEXT)
    ARRAYS.stop(head)
  elseif kind == 'expires' and not head.cancel_requested_at and not redis.call('HGET', ARRAYS.key(head.id), 'begun') then
    redis.call('HSET', job_key(head.id), 'cancel_requested_at', NOW_TEXT, 'reason', 'expired')
    ARRAYS.stop(head)
  end
end

local function ring(kind, id)
  local job = read(id)
  local at = job and not TERMINAL[job.status] and job[kind .. '_at']
  index(TIMERS.DUE, FORMATS.timer(kind, id), false)
  if not at then
    return
  end
  if at > NOW then
    index(TIMERS.DUE, FORMATS.timer(kind, id), at)
  elseif job.status == 'running' then
    if kind == 'deadline' and not job.expired_at then
      stop_running(job)
    end
  elseif ARRAYS.is_array(job) and ARRAYS.row(id).started then
    ring_array(kind, job)
  elseif kind == 'deadline' then
    expire_waiting(job, 'failed', 'not done by its deadline')
  elseif job.attempts == 0 then
    expire_waiting(job, 'cancelled', 'not started in time')
  end
end

-- Handle a timer that has fired, a member of `due`.
function EXPIRY.ring(kind, id)
  if not pcall(ring, kind, id) then
    quarantine(id)
    index(TIMERS.DUE, FORMATS.timer(kind, id), false)
  end
end

-- Whether a pending job may still start; if not, it ends here. Its timer may have become due a moment ago,
-- or may still wait for earlier timers.
function EXPIRY.in_time(id, hooks)
  if not has_hook(hooks, 'timers') then
    return true
  end
  local row = redis.call('HMGET', job_key(id), 'deadline_at', 'expires_at', 'attempts')
  for i, kind in ipairs({ 'deadline', 'expires' }) do
    local at = tonumber(row[i] or '')
    if at and at <= NOW and (kind == 'deadline' or (row[3] or '0') == '0') then
      EXPIRY.ring(kind, id)
      return false
    end
  end
  return true
end

end
