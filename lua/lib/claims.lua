-- claims: move pending jobs to running in one step, with a lease for one worker.
-- uses: formats jobs history slots ends gates expiry rows

local CLAIMS = {}

do

local STALE_BUDGET = 1000 -- most ids of cancelled or deleted jobs dropped per call; with more: MORE, never EMPTY
local DUE_BUDGET = 100
local MOST_BYTES = 1048576 -- most bytes of a claim of several jobs: its reply has to arrive in time
local NO_START_COST = 20 -- a popped job that may not start (yet) costs as much as this many dropped ids
local LEASES = P .. 'leases'
local SWEPT = 10 -- most expired requests that each parked request removes from a queue's `:parked`
local PARKED_MS = 3600000 -- shortest TTL of a queue's `:parked`
local ANSWERED_MS = 3600000 -- how long a numbered request that got claims is known: its repeat may come after a long outage

-- Make a due job pending. If its data is damaged, it stays scheduled and delays no
-- other job; maintain_repair puts it back.
local function come_due(job)
  redis.call('HSET', job_key(job.id), 'status', 'pending')
  if not pcall(move, job, 'pending') then
    redis.call('HSET', job_key(job.id), 'status', 'scheduled')
    index(P .. 'due', job.id, false)
    quarantine(job.id)
  end
end

-- Make due jobs pending and fire due timers. Returns whether more are due.
function CLAIMS.promote(limit)
  local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', NOW_TEXT, 'LIMIT', '0', int(limit))
  local more = #due == limit
  for _, member in ipairs(due) do
    local timer, id = FORMATS.read_timer(member)
    local job = not timer and read(member)
    if timer == 'refill' then
      more = not SLOTS.look_again(id) or more
    elseif timer then
      EXPIRY.ring(timer, id)
    elseif job and job.status == 'scheduled' then
      come_due(job)
    else
      index(P .. 'due', member, false)
    end
  end
  return more
end

-- Return the ms until the next job or timer is due, or until a rate allows another start; -1 if there is none.
function CLAIMS.next_due_ms()
  local first = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')
  local due_ms = first[2] and math.max(0, tonumber(first[2]) - NOW) or GATES.due_ms
  return due_ms and math.min(due_ms, GATES.due_ms or due_ms) or -1
end

-- Build LMPOP <9 lists of the queue, highest priority first> LEFT COUNT n. The caller fills in n.
function CLAIMS.pop_call(queue)
  local call = { 'LMPOP', '9' }
  for priority = 9, 1, -1 do
    call[#call + 1] = queue_key(queue) .. ':pending:' .. priority
  end
  call[12], call[13] = 'LEFT', 'COUNT'
  return call
end

local function lease(id, worker, fence, lease_ms, until_text)
  redis.call('SET', job_key(id) .. ':heartbeat', FORMATS.heartbeat(worker, fence, NOW_TEXT, lease_ms), 'PX', lease_ms)
  index(LEASES, id, until_text)
end

-- Start an attempt. Some workers report when the command of a possible poison job begins. Before that, losing the
-- worker does not count against the job: it cannot have killed the worker.
local function start(round, job)
  local asked = round.asked
  round.fence = round.fence + 1
  local key, fence = job_key(job.id), int(round.fence)
  local attempt = job.attempts == 0 and '1' or int(job.attempts + 1)
  redis.call('HSET', key, 'status', 'running', 'attempts', attempt, 'fence', fence, 'worker', asked.worker, 'started_at', NOW_TEXT)
  lease(job.id, asked.worker, fence, asked.lease_ms, round.until_text)
  if asked.begins and ROWS.is_suspect(job) then
    redis.call('HSET', key, 'waits', fence)
  end
  job.fence = fence
  if job.hooks then
    call_hooks(job, 'pending', 'running')
  end
  count_job(job, 'pending', -1)
  count_job(job, 'running', 1)
  append(moves, 'running', job.id)
  round.claims[#round.claims + 1] = ROWS.of_claim(job, fence)
end

-- Put popped ids back, from position `first` on.
local function put_back(list, ids, first)
  for at = #ids, first, -1 do
    redis.call('LPUSH', list, ids[at])
  end
end

-- Return the job that starts when a job with hooks was popped. With a concurrency key, it is the first job admitted for
-- that key. nil or false: none may start.
local function in_its_place(job, list)
  local turn = SLOTS.whose_turn(job.id, job.queue, job.hooks, list)
  if turn ~= job.id then
    job = turn and ROWS.read(turn)
  end
  return job and EXPIRY.in_time(job.id, job.hooks) and ROWS.complete(job)
end

-- Return the job to start for a popped id; nil or false if there is none. An id counts only if the job's hash agrees:
-- pending, in this queue, at this priority.
local function to_start(round, id, queue, list)
  local job = ROWS.read(id)
  if not job or job.status ~= 'pending' or job.queue ~= queue or job.priority ~= string.sub(list, -1) then
    return nil
  elseif not job.hooks then
    return job
  end
  job = in_its_place(job, list)
  if not job then
    round.looks = round.looks - NO_START_COST
  end
  return job
end

-- Start the jobs of popped ids. A possible poison job is claimed alone (see rows). So is a job that is too large to
-- share a reply. The ids after it go back.
local function start_popped(round, queue, list, ids)
  for at, id in ipairs(ids) do
    round.looks = round.looks - 1
    local job = to_start(round, id, queue, list)
    if job then
      round.bytes = round.bytes + ROWS.size(job)
      round.stopped = round.bytes > MOST_BYTES or round.asked.limit > 1 and ROWS.is_suspect(job)
      local starts = not round.stopped or #round.claims == 0
      if round.stopped then -- if another job took its turn, the popped id is back in the list already
        put_back(list, ids, (starts or job.id ~= id) and at + 1 or at)
      end
      if starts then
        start(round, job)
      end
      if round.stopped then
        return
      end
    end
  end
end

local function claim_in(round, queue)
  local before, limit = #round.claims, round.asked.limit
  local gated, call = is_gated(queue), CLAIMS.pop_call(queue)
  local most = gated and before + GATES.room_in(queue, limit - before) or limit
  while #round.claims < most and round.looks > 0 and not round.stopped do -- bound: `looks` falls with each popped id
    call[14] = int(math.min(most - #round.claims, round.looks))
    local popped = redis.call(unpack(call))
    if not popped then
      break
    end
    start_popped(round, queue, popped[1], popped[2])
  end
  if gated and #round.claims > before then
    GATES.note_starts(queue, #round.claims - before)
  end
end

local function note_fence(fence)
  redis.call('HSET', KEYS[1], 'fence', int(fence))
  meta_now()[1] = int(fence)
end

-- Pop up to `limit` jobs: the first queue first, then by priority, then in list order. Returns the claims, and whether
-- the queues may hold more jobs that could be claimed.
local function claim(asked)
  redis.call('ZCARD', LEASES) -- raises if the key is damaged: jobs that run without a lease would never be taken back
  local round = {
    asked = asked,
    claims = {},
    looks = asked.limit + STALE_BUDGET, -- ids that may still be popped
    bytes = 0,
    stopped = false, -- whether this claim takes no more jobs
    fence = HISTORY.last_fence(asked.floor),
    until_text = int(NOW + asked.lease_ms),
  }
  local broken
  for queue in string.gmatch(asked.queues, '%S+') do
    local ok, problem = pcall(claim_in, round, queue)
    broken = broken or not ok and problem
  end
  if #round.claims > 0 then -- a damaged queue does not lose the claims from the others
    note_fence(round.fence)
  elseif broken then
    error(broken, 0)
  end
  return round.claims, round.stopped or round.looks <= 0
end

local function anything_waits(queue)
  local pending, held = unpack(redis.call('HMGET', queue_key(queue), 'pending', 'held'))
  return tonumber(pending or 0) > tonumber(held or 0) and (not is_gated(queue) or GATES.room_in(queue, 1) > 0)
end

-- Wake the next worker if a call leaves work. Call this after `flush`. Returns the result of `hint` for the last queue,
-- and whether a job waits there. A queue whose hash is damaged counts as having work: an error here would lose the
-- claims of this call.
function CLAIMS.hint_left(queues)
  local unheard, waits
  for queue in string.gmatch(queues, '%S+') do
    local ok, found = pcall(anything_waits, queue)
    waits = ok and found
    unheard = (waits or not ok) and hint(queue)
  end
  return unheard, waits
end

-- Whether the last request overtook `request`, `<incarnation>:<counter>`. Ids of another form are never overtaken.
local function is_overtaken(request, last)
  local incarnation, counter = string.match(request, '^(.*):(%d+)$')
  local last_incarnation, last_counter = string.match(last, '^(.*):(%d+)$')
  return incarnation and incarnation == last_incarnation and tonumber(counter) < tonumber(last_counter)
end

-- Return the claims of an earlier, equal request that are still held. Their new lease counts from the repeat, which may
-- come much later. A job that has to stop by now is not started: it ends with its lease.
local function claims_held(asked, text)
  local claims, until_text = {}, int(NOW + asked.lease_ms)
  for id, fence in FORMATS.read_attempts(text) do
    local job = ROWS.read(id)
    local held = job and job.status == 'running' and redis.call('HMGET', job_key(id), 'fence', 'cancel_requested_at', 'expired_at')
    if held and held[1] == fence and not held[2] and not held[3] then
      lease(id, asked.worker, fence, asked.lease_ms, until_text)
      job.attempts = job.attempts - 1 -- as before this attempt
      claims[#claims + 1] = ROWS.of_claim(ROWS.complete(job), fence)
    end
  end
  return claims
end

-- Park a request that found nothing. Until `park_ms` have passed, new work wakes its worker.
local function park(asked, key)
  local worker, inbox, park_ms = asked.worker, asked.inbox, asked.park_ms
  redis.call('HSET', key, 'request', asked.request, 'inbox', inbox, 'claims', '', 'parked', asked.queues)
  redis.call('PEXPIRE', key, int(math.max(2 * tonumber(asked.lease_ms), park_ms)))
  for queue in string.gmatch(asked.queues, '%S+') do
    local set = queue_key(queue) .. ':parked'
    local ended = redis.call('ZRANGEBYSCORE', set, '-inf', '(' .. NOW_TEXT, 'LIMIT', '0', int(SWEPT))
    if ended[1] then
      redis.call('ZREM', set, unpack(ended))
    end
    redis.call('ZADD', set, int(NOW + park_ms), worker)
    redis.call('PEXPIRE', set, int(math.max(park_ms, PARKED_MS)))
  end
end

-- Return the record of a worker's last request. A worker may have one more request under way: its incarnation ends in
-- `~2`, and that sequence has a record of its own.
local function last_request(asked)
  local key = P .. 'worker:' .. asked.worker .. ':claim' .. (string.match(asked.request, '~%d') or '')
  local row = redis.call('HMGET', key, 'request', 'claims', 'parked', 'inbox')
  return { key = key, request = row[1], claims = row[2] or '', parked = row[3] or '', inbox = row[4] }
end

-- End a request whose answer cannot be delivered, or that is no longer wanted. It is unparked, its claims are given
-- back, and the attempts are refunded. It may have been woken for work that it does not take now, so another worker is
-- woken. The record of a numbered request stays for a while: older requests stay overtaken.
local function end_request(asked, last)
  if last.parked ~= '' then
    unpark(asked.worker, asked.queues)
  end
  for id, fence in FORMATS.read_attempts(last.claims) do
    if not pcall(ENDS.give_back, id, fence) then
      quarantine(id)
    end
  end
  if string.find(asked.request, ':%d+$') then
    redis.call('HSET', last.key, 'claims', '', 'parked', '')
    redis.call('PEXPIRE', last.key, int(2 * tonumber(asked.lease_ms)))
  else
    redis.call('DEL', last.key)
  end
  flush()
  CLAIMS.hint_left(asked.queues)
end

-- An id without a number may be the API's own, of which no repeat comes later: clients without an id may take a new worker
-- name for each call, and each would leave a record for an hour.
local function known_ms(asked)
  return string.find(asked.request, ':%d+$') and ANSWERED_MS or 2 * tonumber(asked.lease_ms)
end

local function answer_again(asked, last)
  redis.call('HSET', last.key, 'inbox', '') -- two answers carry these claims now, so neither takes them back
  redis.call('PEXPIRE', last.key, int(known_ms(asked)))
  local claims = claims_held(asked, last.claims)
  flush()
  return 'CLAIMED', claims, -1
end

local function answer_new(asked, key)
  local due_left = CLAIMS.promote(DUE_BUDGET)
  flush()
  local claims, exhausted = claim(asked)
  flush()
  if #claims == asked.limit or exhausted then
    CLAIMS.hint_left(asked.queues)
  end
  if #claims > 0 then
    redis.call('HSET', key, 'request', asked.request, 'inbox', asked.inbox, 'claims', FORMATS.attempts(claims), 'parked', '')
    redis.call('PEXPIRE', key, int(known_ms(asked)))
    return 'CLAIMED', claims, CLAIMS.next_due_ms()
  elseif exhausted or due_left then
    return 'MORE', claims, 0
  elseif asked.park_ms > 0 then
    park(asked, key)
    return 'PARKED', claims, CLAIMS.next_due_ms()
  end
  return 'EMPTY', claims, CLAIMS.next_due_ms()
end

-- Answer a claim request once. A repeat gets the same claims; an older request that was overtaken gets none.
-- `asked` has the arguments of attempt_claim.
--
-- A request that got nothing is not answered yet: it may be repeated, or parked for `park_ms` (0: not parked). Its
-- record names the inbox through which it came. A limit of 0 ends the request only if it has not come through another
-- inbox since. Returns a status word, the claims, and the ms until the next job is due (-1: none).
function CLAIMS.answer(asked)
  local last = last_request(asked)
  if asked.limit == 0 then
    if last.request == asked.request and last.inbox == asked.inbox then
      end_request(asked, last)
    end
    return 'EMPTY', {}, -1
  elseif last.request and is_overtaken(asked.request, last.request) then
    return 'STALE', {}, -1
  elseif last.request == asked.request and last.claims ~= '' then
    return answer_again(asked, last)
  end
  if last.parked ~= '' then
    unpark(asked.worker, last.parked)
  end
  return answer_new(asked, last.key)
end

end
