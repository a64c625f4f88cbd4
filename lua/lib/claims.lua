-- claims: move pending jobs to running, leased to one worker — the reliable queue in one step.
-- uses: formats jobs history slots ends gates expiry rows

local promote, claim_once, hint_left, next_due_ms, pop_call, claim

do
local STALE_BUDGET = 1000 -- ids of cancelled or deleted jobs dropped per call; more of them answer MORE, never EMPTY
local DUE_BUDGET = 100
local MOST_BYTES = 1048576 -- of the jobs of one claim, where it has more than one: its reply has to come in time
local NO_START_COST = 20 -- who may not start any more, or not yet, is as much work as so many dropped ids
local LEASES = P .. 'leases'
local SWEPT = 10 -- ended requests that are swept out of a queue's parked ones by each that is parked
local PARKED_MS = 3600000 -- the least that those of a queue are kept

-- A job's time has come. One of which something is damaged waits on, and holds up no other: the reapers' look puts it back.
local function come_due(job)
  redis.call('HSET', job_key(job.id), 'status', 'pending')
  if not pcall(move, job, 'pending') then
    redis.call('HSET', job_key(job.id), 'status', 'scheduled')
    index(P .. 'due', job.id, false)
    quarantine(job.id)
  end
end

-- Make due jobs pending, and act on timers that have come; returns whether more are due.
function promote(limit)
  local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', NOW_TEXT, 'LIMIT', '0', int(limit))
  for _, member in ipairs(due) do
    local timer, id = string.match(member, '^(%a+) (.+)$')
    local job = not timer and read(member)
    if timer == 'refill' then
      SLOTS.look_again(id)
    elseif timer then
      ring_safely(timer, id)
    elseif job and job.status == 'scheduled' then
      come_due(job)
    else
      index(P .. 'due', member, false)
    end
  end
  return #due == limit
end

-- Milliseconds until the next job or timer is due, or a rate allows another start; -1 when there is none.
function next_due_ms()
  local first = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')
  local due_ms = first[2] and math.max(0, tonumber(first[2]) - NOW) or gate_due_ms
  return due_ms and math.min(due_ms, gate_due_ms or due_ms) or -1
end

local function note_fence(fence)
  redis.call('HSET', KEYS[1], 'fence', int(fence))
  meta_now()[1] = int(fence)
end

-- LMPOP <9 lists of the queue, highest priority first> LEFT COUNT n, the count still to be filled in.
function pop_call(queue)
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

-- Start an attempt. `number` is its fence; `until_text` the end of its lease, as digits. `begins`: its worker says when
-- the command of a suspect begins. Until then a loss does not count: it was not the one that killed the worker.
local function start(id, row, worker, number, lease_ms, until_text, begins)
  local attempt = (tonumber(row[4] or 0) or 0) + 1
  local key, fence = job_key(id), int(number)
  redis.call('HSET', key, 'status', 'running', 'attempts', attempt == 1 and '1' or int(attempt), 'fence', fence,
    'worker', worker, 'started_at', NOW_TEXT)
  lease(id, worker, fence, lease_ms, until_text)
  if begins and ROWS.is_suspect(id, row) then
    redis.call('HSET', key, 'waits', fence)
  end
  count(queue_key(row[2] or 'default'), 'running', 1)
  if row[5] then
    count(P .. 'workflow:' .. row[5], 'running', 1)
  end
  append(moves, 'running', id)
  if row[12] then
    local job = { id = id, hooks = row[12], queue = row[2] or 'default', fence = fence, array = row.array }
    call_hooks(job, 'pending', 'running')
  end
  return ROWS.of_claim(id, fence, attempt, row)
end

-- Put popped ids back, from one of them on.
local function put_back(list, ids, first)
  for at = #ids, first, -1 do
    redis.call('LPUSH', list, ids[at])
  end
end

local function row_of_job(id)
  return redis.pcall('HMGET', job_key(id), unpack(ROWS.FIELDS))
end

local function size_of(row)
  local bytes = 0
  for _, at in ipairs(ROWS.PAYLOADS) do
    bytes = bytes + #(row[at] or '')
  end
  return bytes
end

-- Pop up to `limit` jobs from the queues, the first queue first, higher priorities first, else in order.
--
-- A popped id counts only if its hash says that it is pending in this queue at this priority. A suspect is claimed
-- alone (see rows), and so is a job that is too large for others beside it. Returns the claims and whether the queues may
-- hold more that could be claimed.
function claim(worker, queues, limit, lease_ms, floor, begins)
  redis.call('ZCARD', LEASES) -- were it damaged, jobs would be running without a lease: nobody would take them back
  local claims, budget, bytes, stopped = {}, limit + STALE_BUDGET, 0, false
  local fence, until_text = last_fence(floor), int(NOW + lease_ms)

  -- The job to start in the place of a popped one, and its row; nil if none is.
  local function next_one(id, queue, list)
    local row = row_of_job(id)
    if row[1] ~= 'pending' or (row[2] or 'default') ~= queue or (row[3] or '5') ~= string.sub(list, -1) then
      return nil
    end
    local turn = not row[12] and id or SLOTS.whose_turn(id, queue, row[12], list)
    if turn and turn ~= id then
      row = row_of_job(turn)
    end
    if not turn or not in_time(turn, row[12]) then
      budget = budget - NO_START_COST
      return nil
    end
    return turn, ROWS.with_array(turn, row)
  end

  local function start_popped(list, ids, queue)
    for at, id in ipairs(ids) do
      budget = budget - 1
      local turn, row = next_one(id, queue, list)
      if turn then
        bytes = bytes + size_of(row)
        stopped = bytes > MOST_BYTES or limit > 1 and ROWS.is_suspect(turn, row)
        local comes = not stopped or #claims == 0
        if stopped then -- where another one had its turn, the popped one is back in the list
          put_back(list, ids, (comes or turn ~= id) and at + 1 or at)
        end
        if comes then
          fence = fence + 1
          claims[#claims + 1] = start(turn, row, worker, fence, lease_ms, until_text, begins)
          count_job({ queue = queue, workflow = row[5] }, 'pending', -1)
        end
        if stopped then
          return
        end
      end
    end
  end

  local function claim_in(queue)
    local call, gated, before = pop_call(queue), is_gated(queue), #claims
    local most = gated and before + room_in(queue, limit - before) or limit
    while #claims < most and budget > 0 and not stopped do
      call[14] = int(math.min(most - #claims, budget))
      local popped = redis.call(unpack(call))
      if not popped then
        break
      end
      start_popped(popped[1], popped[2], queue)
    end
    if gated and #claims > before then
      note_starts(queue, #claims - before)
    end
  end

  local broken
  for queue in string.gmatch(queues, '%S+') do
    local ok, problem = pcall(claim_in, queue)
    broken = broken or not ok and problem
  end
  if #claims > 0 then -- what has been claimed in other queues is not lost with one that is damaged
    note_fence(fence)
  elseif broken then
    error(broken, 0)
  end
  return claims, stopped or budget <= 0
end

local function anything_waits(queue)
  local pending, held = unpack(redis.call('HMGET', queue_key(queue), 'pending', 'held'))
  return tonumber(pending or 0) > tonumber(held or 0) and (not is_gated(queue) or room_in(queue, 1) > 0)
end

-- Wake the next worker where a call leaves work behind. Call it after `flush`. Returns what `hint` does, for the last queue.
-- A queue whose hash is damaged may have work. An error here would lose the claims that this call has just made.
function hint_left(queues)
  local unheard
  for queue in string.gmatch(queues, '%S+') do
    local ok, waits = pcall(anything_waits, queue)
    unheard = (waits or not ok) and hint(queue)
  end
  return unheard
end

-- Whether a request `<incarnation>:<counter>` was overtaken by the last one; ids of another form never are.
local function is_overtaken(request, last)
  local incarnation, counter = string.match(request, '^(.*):(%d+)$')
  local last_incarnation, last_counter = string.match(last, '^(.*):(%d+)$')
  return incarnation and incarnation == last_incarnation and tonumber(counter) < tonumber(last_counter)
end

-- Claims of an equal, earlier request that are still held, with a new lease: the lease counts from the repeat, which may come
-- much later. A job that has to stop by now is not started: it ends with its lease.
local function claims_held(text, worker, lease_ms)
  local claims, until_text = {}, int(NOW + lease_ms)
  for id, fence in string.gmatch(text, '(%S+) (%S+)') do
    local row = row_of_job(id)
    local held = row[1] == 'running' and redis.call('HMGET', job_key(id), 'fence', 'cancel_requested_at', 'expired_at')
    if held and held[1] == fence and not held[2] and not held[3] then
      lease(id, worker, fence, lease_ms, until_text)
      local attempt = tonumber(row[4])
      row[4] = attempt - 1
      claims[#claims + 1] = ROWS.of_claim(id, fence, attempt, ROWS.with_array(id, row))
    end
  end
  return claims
end

-- `id fence` of each claim.
local function held_text(claims)
  local held = {}
  for i, row in ipairs(claims) do
    held[i] = row[1] .. ' ' .. row[2]
  end
  return table.concat(held, ' ')
end

-- Keep a request that found nothing: until `park_ms` have passed, who makes work wakes its worker.
local function park(worker, key, request, queues, lease_ms, park_ms, inbox)
  redis.call('HSET', key, 'request', request, 'inbox', inbox, 'claims', '', 'parked', inbox .. ' ' .. queues)
  redis.call('PEXPIRE', key, int(math.max(2 * tonumber(lease_ms), park_ms)))
  for queue in string.gmatch(queues, '%S+') do
    local set = queue_key(queue) .. ':parked'
    local ended = redis.call('ZRANGEBYSCORE', set, '-inf', '(' .. NOW_TEXT, 'LIMIT', '0', int(SWEPT))
    if ended[1] then
      redis.call('ZREM', set, unpack(ended))
    end
    redis.call('ZADD', set, int(NOW + park_ms), worker)
    redis.call('PEXPIRE', set, int(math.max(park_ms, PARKED_MS)))
  end
end

-- End a request whose answer can't be delivered, or that is no longer wanted: it is parked no longer, and what it has got
-- is given back, the attempts refunded. It may have been woken for work that it does not take now: another one is. The
-- record of a numbered one is left for a while: older ones stay overtaken.
local function end_request(worker, key, request, held, parked, queues)
  if parked ~= '' then
    unpark(worker, queues)
  end
  for id, fence in string.gmatch(held, '(%S+) (%S+)') do
    if not pcall(give_back, id, fence) then
      quarantine(id)
    end
  end
  if string.find(request, ':%d+$') then
    redis.call('HSET', key, 'claims', '', 'parked', '')
  else
    redis.call('DEL', key)
  end
  flush()
  hint_left(queues)
end

-- Answer a claim request once: a repeat gets the same claims, an older one that was overtaken gets none.
--
-- A request that got nothing is not answered yet: it may be made again, or parked for `park_ms` (0: it is not). Its record
-- names the inbox through which it was made: a limit of 0 ends it only if nobody else has made it since. A worker has
-- another sequence of requests, with one more of them under way, where its incarnation ends in `~2`.
-- Returns a status word, the claims, and the ms until the next job is due (-1: none).
function claim_once(worker, request, queues, limit, lease_ms, floor, park_ms, inbox, begins)
  local key = P .. 'worker:' .. worker .. ':claim' .. (string.match(request, '~%d') or '')
  local last, held, parked, asked = unpack(redis.call('HMGET', key, 'request', 'claims', 'parked', 'inbox'))
  if limit == 0 then
    if last == request and asked == inbox then
      end_request(worker, key, request, held or '', parked or '', queues)
    end
    return 'EMPTY', {}, -1
  end
  if last and is_overtaken(request, last) then
    return 'STALE', {}, -1
  end
  if last == request and held ~= '' then
    redis.call('HSET', key, 'inbox', '') -- two answers bring these claims now: neither is taken back
    redis.call('PEXPIRE', key, int(2 * tonumber(lease_ms)))
    local claims = claims_held(held, worker, lease_ms)
    flush()
    return 'CLAIMED', claims, -1
  end
  if parked and parked ~= '' then
    unpark(worker, string.match(parked, ' .*$') or '')
  end
  local due_left = promote(DUE_BUDGET)
  flush()
  local claims, exhausted = claim(worker, queues, limit, lease_ms, floor, begins)
  flush()
  if #claims == limit or exhausted then
    hint_left(queues)
  end
  if #claims > 0 then
    redis.call('HSET', key, 'request', request, 'inbox', inbox, 'claims', held_text(claims), 'parked', '')
    redis.call('PEXPIRE', key, int(2 * tonumber(lease_ms)))
    return 'CLAIMED', claims, next_due_ms()
  end
  if exhausted or due_left then
    return 'MORE', claims, 0
  end
  if park_ms > 0 then
    park(worker, key, request, queues, lease_ms, park_ms, inbox)
    return 'PARKED', claims, next_due_ms()
  end
  return 'EMPTY', claims, next_due_ms()
end
end
