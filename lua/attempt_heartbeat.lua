-- attempt_heartbeat: record that a worker is alive, and renew the leases of all its attempts.
-- uses: formats timers unfenced
--
-- A lease is renewed while status and fence match, even if the heartbeat key is gone. It is never renewed beyond
-- started_at + timeout + stop_ms, nor beyond the cancel (or the missed deadline) + stop_ms. If a worker ignores these
-- limits, the reaper ends the attempt.
--
-- ARGV[1]  worker    name of the worker, '' for the worker that has the attempt
-- ARGV[2]  lease_ms  duration of the lease, ms; a worker that is silent for longer is lost
-- ARGV[3]  stop_ms   time to stop a command that must end, ms
-- ARGV[4]  about     the worker's description of itself as JSON, '' for none
-- ARGV[5..]  held    id, fence (or `safe`, `always`: see lib/unfenced) of each running attempt
--
-- Returns {"BEAT", drain, "ok" | "cancel" | "lost", …} in the order of `held`; drain: the request that worker_drain
-- stored, '' for none

local worker, lease_ms, stop_ms, about = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local timeouts = {} -- array → the timeout of its tasks, '' for none

local function timeout_of_array(array)
  if not timeouts[array] then
    local said = redis.pcall('HGET', job_key(array), 'timeout_ms')
    timeouts[array] = type(said) == 'string' and said or ''
  end
  return timeouts[array] ~= '' and timeouts[array]
end

-- Return a time of a job as a number. A time in the future dates from a wrong server clock, and becomes now.
local function passed(key, field, moment)
  moment = tonumber(moment or '')
  if moment and moment > NOW then
    redis.call('HSET', key, field, NOW_TEXT)
    moment = NOW
  end
  return moment
end

local function beat(id, fence)
  fence = UNFENCED.meant_fence(id, fence)
  local key = job_key(id)
  local row = redis.pcall('HMGET', key, 'status', 'fence', 'timeout_ms', 'started_at', 'cancel_requested_at', 'expired_at',
    'array')
  if row[1] ~= 'running' or row[2] ~= fence then
    return 'lost'
  end
  local timeout_ms = row[3] or row[7] and timeout_of_array(row[7])
  local started_at = passed(key, 'started_at', row[4])
  local timeout_at = timeout_ms and started_at + tonumber(timeout_ms)
  local cancelled_at, overrun_at = passed(key, 'cancel_requested_at', row[5]), passed(key, 'expired_at', row[6])
  local _, last = TIMERS.must_stop(stop_ms, timeout_at, cancelled_at, overrun_at)
  if last and NOW > last then
    return 'lost'
  end
  local holder = worker ~= '' and worker or redis.call('HGET', key, 'worker')
  redis.call('SET', key .. ':heartbeat', FORMATS.heartbeat(holder, fence, NOW_TEXT, lease_ms), 'PX', lease_ms)
  index(P .. 'leases', id, math.min(NOW + tonumber(lease_ms), last and last + 1 or math.huge))
  return (cancelled_at or overrun_at) and 'cancel' or 'ok'
end

local own_key = P .. 'worker:' .. worker
local answer = { 'BEAT', redis.call('HGET', own_key, 'drain') or '' }
for at = 5, #ARGV, 2 do
  answer[#answer + 1] = UNFENCED.spare_others(ARGV[at], 'lost', beat, ARGV[at], ARGV[at + 1])
end
if about ~= '' then
  if redis.call('HSET', own_key, 'about', about, 'lease_ms', lease_ms) > 0 then
    redis.call('HSETNX', own_key, 'since', NOW_TEXT) -- the first heartbeat; the worker's own clock may be wrong
  end
  redis.call('PEXPIRE', own_key, int(WORKER_SHOWN_MS))
  redis.call('ZADD', P .. 'workers', NOW_TEXT, worker)
end
flush()
return answer
