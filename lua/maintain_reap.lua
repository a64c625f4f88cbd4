-- maintain_reap: take jobs back from silent workers. One script compares and moves, so any number of reapers is safe.
-- uses: formats jobs history timers ends
--
-- A job is taken only if its lease has passed and its heartbeat key (same fence) is gone too. If the worker is alive,
-- the lease gets a new score. If the command of a poison job had not started, the job is given back, and the attempt is
-- refunded.
--
-- If no reaper ran for a while, Redis or all reapers were away, and workers could not send heartbeats. A lease that ran
-- then is put off by that time, once. A score that ends in .5 marks a lease that was put off; a heartbeat writes a
-- whole number.
--
-- No lease is longer than its attempt was given (see its heartbeat). A longer one was made while the server's clock was
-- ahead. So each pass also looks at the last leases.
--
-- ARGV[1]  pass_ms   time between two passes, ms
-- ARGV[2]  lease_ms  duration of a lease, ms
-- ARGV[3]  stop_ms   time to stop a command that must end, ms
-- ARGV[4]  limit     most leases to look at, 1..100
-- ARGV[5]  excess    share of the used memory that is too much for new work, 0..1; 0: there is room; '': unknown
-- ARGV[6]  seen      highest pass that the caller has seen, 0: none
--
-- Returns {"REAPED", undone, passes, requeued, ended, alive, put_off, more, {id, attempt, worker}, …}; undone: number of
-- passes that Redis has lost; passes: number of this pass; more: 1 if leases are left to look at

local pass_ms, lease_ms, stop_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, excess, seen = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local MOST_LOST = 1000 -- lost workers that stay in the list
local FORGOTTEN = 100 -- most of them removed in one pass

local last, stalled_at, resumed_at, passes, far = unpack(
  redis.call('HMGET', KEYS[1], 'last_pass', 'stalled_at', 'resumed_at', 'passes', 'far'))
passes, far, last = tonumber(passes or '') or 0, tonumber(far or '') or 0, tonumber(last or '') -- the fields may be damaged
local undone = math.max(seen - passes, 0)
if undone > 0 then
  HISTORY.note_rollback('passes', seen, passes)
  passes = seen
end
passes = passes + 1
if excess and excess > 0 then -- as a number of jobs: this many must go before there is room
  redis.call('HSET', KEYS[1], 'full', int(math.max(1, math.ceil(excess * redis.call('ZCARD', P .. 'jobs')))))
elseif excess then
  redis.call('HDEL', KEYS[1], 'full')
end
redis.call('HSET', KEYS[1], 'last_pass', NOW_TEXT, 'passes', int(passes))
if last and NOW - last > math.max(3 * pass_ms, 3000) then
  stalled_at, resumed_at = int(last), NOW_TEXT
  redis.call('HSET', KEYS[1], 'stalled_at', stalled_at, 'resumed_at', resumed_at)
end
stalled_at, resumed_at = tonumber(stalled_at or ''), tonumber(resumed_at or '')

local requeued, ended, alive, put_off = 0, 0, 0, 0
local taken = {}

-- Return why a job must stop, and by when (ms): see timers.
local function stop_of(job)
  local timeout_at = job.timeout_ms and job.started_at and job.started_at + job.timeout_ms
  return TIMERS.must_stop(stop_ms, timeout_at, job.cancel_requested_at, TIMERS.expired_at(job))
end

-- Return how long the lease of a job may still run (ms), 0 if it is lost.
local function rest_ms(job)
  local _, last = stop_of(job)
  local overdue = last and NOW > last
  local key = job_key(job.id) .. ':heartbeat'
  local holder = not overdue and redis.call('GET', key)
  local _, fence, _, own_ms = FORMATS.read_heartbeat(holder)
  if fence ~= job.fence then
    return 0
  end
  local rest = redis.call('PTTL', key)
  if rest > tonumber(own_ms) then -- as in `cut_short`
    rest = tonumber(own_ms)
    redis.call('PEXPIRE', key, own_ms)
  end
  return math.min(math.max(rest, 1), last and last + 1 - NOW or math.huge)
end

-- Return until when an expired lease is put off because no reaper looked while it ran; nil if it is not.
local function put_off_until(till)
  if not (stalled_at and resumed_at) or resumed_at > NOW or till % 1 ~= 0 then
    return nil
  end
  local later = math.min(math.max(till, stalled_at) + resumed_at - stalled_at, resumed_at + lease_ms)
  return later > NOW and later or nil
end

-- Cut a lease, and its heartbeat, to the duration that its attempt was given; returns whether it was longer. A lease
-- without a heartbeat is marked as put off.
local function cut_short(id, till)
  local key = job_key(id) .. ':heartbeat'
  local own_ms = tonumber((select(4, FORMATS.read_heartbeat(redis.call('GET', key))))) or lease_ms
  if till <= NOW + own_ms then
    return false
  end
  local is_held = redis.call('PEXPIRE', key, int(own_ms)) == 1
  index(P .. 'leases', id, is_held and NOW + own_ms or int(NOW + own_ms) .. '.5')
  return true
end

-- Look at the last leases, which end later than a lease of `lease_ms` made now. The next pass continues after the
-- correct ones. Returns whether a full page was wrong, so that there may be more.
local function look_at_last()
  local first = '(' .. int(NOW + lease_ms)
  local found = redis.call('ZREVRANGEBYSCORE', P .. 'leases', '+inf', first, 'WITHSCORES', 'LIMIT', int(far), int(limit))
  local right = 0
  for at = 1, #found, 2 do
    local ok, cut = pcall(cut_short, found[at], tonumber(found[at + 1]))
    if not ok then
      quarantine(found[at])
    end
    right = right + (ok and cut and 0 or 1)
  end
  local behind = #found == 2 * limit and far + right or 0
  if behind ~= far then
    redis.call('HSET', KEYS[1], 'far', int(behind))
  end
  return #found == 2 * limit and right == 0
end

-- Return whether the worker was lost before the command of a poison job started: then the loss does not count. After
-- many refunds it counts, as a job may kill workers even before its command starts.
local function had_not_begun(job)
  return job.waits == job.fence and (tonumber(job.releases or '') or 0) < ENDS.REFUNDS
end

local function lost(job)
  local why, last = stop_of(job)
  local what = 'worker ' .. (job.worker or '?') .. ' was silent for longer than its lease'
  local outcome = { reason = 'worker_lost', error = 'worker lost: ' .. what }
  if last and NOW > last then
    outcome = { reason = 'timeout', error = why .. ': the worker did not stop the command in time' }
  end
  taken[#taken + 1] = { job.id, job.attempts, job.worker or '?' }
  local status = had_not_begun(job) and ENDS.give_back(job.id, job.fence)
  if not status then
    redis.call('HINCRBY', job_key(job.id), 'losses', '1')
    status = ENDS.conclude(job, outcome)
  end
  if TERMINAL[status] then
    ended = ended + 1
  else
    requeued = requeued + 1
  end
end

local function look_at(id, till)
  local job = read(id)
  if not job or job.status ~= 'running' then
    index(P .. 'leases', id, false)
    return
  end
  local rest = rest_ms(job)
  local later = rest <= 0 and put_off_until(till)
  if rest > 0 then
    alive = alive + 1
    index(P .. 'leases', id, NOW + rest)
  elseif later then
    put_off = put_off + 1
    index(P .. 'leases', id, int(later) .. '.5')
  else
    lost(job)
  end
end

-- Forget workers that have been silent for an hour, and all lost workers but the latest. A worker that is restarted
-- each time its jobs kill it leaves many.
local function forget_workers()
  local all = P .. 'workers'
  redis.call('ZREMRANGEBYSCORE', all, '-inf', int(NOW - WORKER_SHOWN_MS))
  local many = redis.call('ZCOUNT', all, '-inf', int(NOW - lease_ms)) - MOST_LOST
  if many <= 0 then
    return
  end
  local oldest = redis.call('ZRANGE', all, '0', int(math.min(many, FORGOTTEN) - 1), 'WITHSCORES')
  for at = 1, #oldest, 2 do
    local key = P .. 'worker:' .. oldest[at]
    local own_ms = redis.pcall('HGET', key, 'lease_ms')
    if NOW - tonumber(oldest[at + 1]) > (type(own_ms) == 'string' and tonumber(own_ms) or 0) then
      redis.call('DEL', key)
      redis.call('ZREM', all, oldest[at])
    end
  end
end

local due = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', NOW_TEXT, 'WITHSCORES', 'LIMIT', '0', int(limit))
for at = 1, #due, 2 do
  if not pcall(look_at, due[at], tonumber(due[at + 1])) then
    quarantine(due[at])
    index(P .. 'leases', due[at], false)
  end
end
local more = look_at_last() or #due == 2 * limit
flush()
forget_workers()
flush()
return { 'REAPED', undone, passes, requeued, ended, alive, put_off, more and 1 or 0, unpack(taken) }
