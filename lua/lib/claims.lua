-- claims: move pending jobs to running, leased to one worker — the reliable queue in one step.

local promote, claim_once, hint_left, hand_out, next_due_ms, pop_call, claim

do
local STALE_BUDGET = 1000 -- ids of cancelled or deleted jobs dropped per call; more of them answer MORE, never EMPTY
local DUE_BUDGET = 100
local NO_START_COST = 20 -- who may not start any more, or not yet, is as much work as so many dropped ids
local LEASES = P .. 'leases'
local to_hand = 16 -- most jobs that one call gives to workers which did not ask in this moment

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
      redis.call('HSET', job_key(member), 'status', 'pending')
      move(job, 'pending')
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
  redis.call('SET', job_key(id) .. ':heartbeat', worker .. ' ' .. fence .. ' ' .. NOW_TEXT .. ' ' .. lease_ms, 'PX', lease_ms)
  index(LEASES, id, until_text)
end

-- Start an attempt. `number` is its fence; `until_text` the end of its lease, as digits. `begins`: its worker says when
-- the command of a suspect begins. Until then a loss does not count: it was not the one that killed the worker.
local function start(id, row, worker, number, lease_ms, until_text, begins)
  row = ROWS.with_array(id, row)
  local attempt = (tonumber(row[4] or 0) or 0) + 1
  local key, fence = job_key(id), int(number)
  redis.call('HSET', key, 'status', 'running', 'attempts', attempt == 1 and '1' or int(attempt), 'fence', fence,
    'worker', worker, 'started_at', NOW_TEXT)
  lease(id, worker, fence, lease_ms, until_text)
  if begins and row[13] and ROWS.is_suspect(id, row) then
    redis.call('HSET', key, 'waits', fence)
  end
  count(queue_key(row[2] or 'default'), 'running', 1)
  if row[5] then
    count(P .. 'workflow:' .. row[5], 'running', 1)
  end
  append(moves, 'running', id)
  if row[12] then
    local job = { id = id, holds = row[12], queue = row[2] or 'default', fence = fence, array = row.array }
    tell_holders(job, 'pending', 'running')
  end
  return ROWS.of_claim(id, fence, attempt, row)
end

-- Put popped ids back, from one of them on.
local function put_back(list, ids, first)
  for at = #ids, first, -1 do
    redis.call('LPUSH', list, ids[at])
  end
end

-- Pop up to `limit` jobs from the queues, the first queue first, higher priorities first, else in order.
--
-- A popped id counts only if its hash says that it is pending in this queue at this priority. A suspect is claimed
-- alone (see rows). Returns the claims and whether the queues may hold more that could be claimed.
function claim(worker, queues, limit, lease_ms, floor, begins)
  redis.call('ZCARD', LEASES) -- were it damaged, jobs would be running without a lease: nobody would take them back
  local claims, budget, stopped = {}, limit + STALE_BUDGET, false
  local fence, until_text = last_fence(floor), int(NOW + lease_ms)
  for queue in string.gmatch(queues, '%S+') do
    local call, gated, before = pop_call(queue), is_gated(queue), #claims
    local most = gated and before + room_in(queue, limit - before) or limit
    while #claims < most and budget > 0 do
      call[14] = int(math.min(most - #claims, budget))
      local popped = redis.call(unpack(call))
      if not popped then
        break
      end
      local priority = string.sub(popped[1], -1)
      for at, id in ipairs(popped[2]) do
        budget = budget - 1
        local row = redis.pcall('HMGET', job_key(id), unpack(ROWS.FIELDS))
        local suspect = limit > 1 and row[13] and ROWS.is_suspect(id, row)
        if suspect then
          put_back(popped[1], popped[2], #claims > 0 and at or at + 1)
          limit, most, stopped = math.max(#claims, 1), math.max(#claims, 1), true
        end
        if suspect and #claims > 0 then
          break
        end
        if type(row) == 'table' and row[1] == 'pending' and (row[2] or 'default') == queue
          and (row[3] or '5') == priority then
          local turn = not row[12] and id or SLOTS.whose_turn(id, queue, row[12], popped[1])
          if turn and turn ~= id then
            row = redis.call('HMGET', job_key(turn), unpack(ROWS.FIELDS))
            if limit > 1 and row[13] and ROWS.is_suspect(turn, row) then
              put_back(popped[1], popped[2], at + 1)
              suspect, limit, most, stopped = true, math.max(#claims, 1), math.max(#claims, 1), true
            end
            if suspect and #claims > 0 then
              break
            end
          end
          id = turn
          if not id or row[12] and not in_time(id, row[12]) then
            budget = budget - NO_START_COST
          else
            fence = fence + 1
            claims[#claims + 1] = start(id, row, worker, fence, lease_ms, until_text, begins)
            count_job({ queue = queue, workflow = row[5] }, 'pending', -1)
          end
        end
        if suspect then
          break
        end
      end
    end
    if gated and #claims > before then
      note_starts(queue, #claims - before)
    end
  end
  if #claims > 0 then
    note_fence(fence)
  end
  return claims, stopped or budget <= 0
end

local function anything_waits(queue)
  local pending, held = unpack(redis.call('HMGET', queue_key(queue), 'pending', 'held'))
  return tonumber(pending or 0) > tonumber(held or 0) and (not is_gated(queue) or room_in(queue, 1) > 0)
end

-- Who leaves work behind wakes the next worker. Call it after `flush`.
function hint_left(queues)
  for queue in string.gmatch(queues, '%S+') do
    if anything_waits(queue) then
      hint(queue)
    end
  end
end

-- Whether a request `<incarnation>:<counter>` was overtaken by the last one; ids of another form never are.
local function is_overtaken(request, last)
  local incarnation, counter = string.match(request, '^(.*):(%d+)$')
  local last_incarnation, last_counter = string.match(last, '^(.*):(%d+)$')
  return incarnation and incarnation == last_incarnation and tonumber(counter) < tonumber(last_counter)
end

-- What an equal, earlier request got and still holds, leased anew: who repeats a request counts from then on, and it may be
-- long since the earlier one came. What has to stop by now is not to be started: it ends with its lease.
local function claims_held(text, worker, lease_ms)
  local claims, until_text = {}, int(NOW + lease_ms)
  for id, fence in string.gmatch(text, '(%S+) (%S+)') do
    local row = redis.pcall('HMGET', job_key(id), unpack(ROWS.FIELDS))
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

-- Keep a request that found nothing: until `park_ms` have passed, who makes work claims for it or wakes its worker.
local function park(worker, key, request, queues, limit, lease_ms, floor, park_ms, inbox)
  local until_ms = int(NOW + park_ms)
  local spot = table.concat({ inbox, int(limit), lease_ms, int(floor), queues }, ' ')
  redis.call('HSET', key, 'request', request, 'inbox', inbox, 'claims', '', 'parked', spot)
  redis.call('PEXPIRE', key, int(math.max(2 * tonumber(lease_ms), park_ms)))
  for queue in string.gmatch(queues, '%S+') do
    local set = queue_key(queue) .. ':parked'
    redis.call('ZADD', set, until_ms, worker)
    if redis.call('PTTL', set) < park_ms then
      redis.call('PEXPIRE', set, int(park_ms))
    end
  end
end

-- Claims as one string: each value as `<length>:<bytes>`, `-` where a field is unset.
local function pack_claims(claims)
  local parts = {}
  for _, row in ipairs(claims) do
    for i = 1, ROWS.WIDTH do
      local value = row[i]
      parts[#parts + 1] = value and #tostring(value) .. ':' .. value or '-'
    end
  end
  return table.concat(parts)
end

-- A job of this call (see submissions) as `start` takes it.
local function row_of(job)
  local row = { 'pending', job.queue, job.priority, false, job.workflow }
  for i = job.first, job.last, 2 do
    local at = ROWS.AT[ARGV[i]]
    if at then
      row[at] = ARGV[i + 1]
    end
  end
  return row
end

-- Lease jobs from `jobs[at]` on to a parked worker and put the claims into its inbox; returns how many. Who has gone
-- meanwhile does not take them out of there: `handed` is how the reaper finds that. It is written first: without it
-- nothing is handed over.
local function hand_over(parked, jobs, at)
  local inbox, limit, lease_ms, floor = string.match(parked.spot, '^(%S+) (%d+) (%d+) (%d+)')
  local about = parked.worker .. ' ' .. parked.request
  if type(redis.pcall('ZADD', P .. 'handed', NOW_TEXT, inbox .. ' ' .. about)) ~= 'number' then
    wake(parked)
    return 0
  end
  local fence, until_text, claims = last_fence(tonumber(floor)), int(NOW + lease_ms), {}
  for i = at, math.min(#jobs, at + tonumber(limit) - 1) do
    fence = fence + 1
    claims[#claims + 1] = start(jobs[i].id, row_of(jobs[i]), parked.worker, fence, lease_ms, until_text)
  end
  note_fence(fence)
  local held = held_text(claims)
  redis.call('HSET', parked.key, 'claims', held, 'parked', '', 'handed', inbox)
  put_into_inbox(inbox, about .. ' ' .. held .. '\n' .. pack_claims(claims))
  return #claims
end

-- Let jobs of this call that wait for nothing become running at parked workers where no others wait before them (there
-- are `pending` of these), else pending. Of many jobs the first worker to be woken takes its share.
function hand_out(queue, jobs, pending)
  local at = 1
  if #jobs <= to_hand and pending <= 0 and not is_gated(queue) then
    to_hand = to_hand - #jobs
    for i, job in ipairs(jobs) do
      job.place = i
    end
    table.sort(jobs, function(one, other)
      return one.priority > other.priority or one.priority == other.priority and one.place < other.place
    end)
    while at <= #jobs do
      local parked = next_parked(queue)
      if not parked then
        break
      end
      at = at + hand_over(parked, jobs, at)
    end
  end
  for i = at, #jobs do
    enter(jobs[i], 'pending')
  end
end

-- Answer a claim request once: a repeat gets the same claims, an older one that was overtaken gets none.
--
-- A request that got nothing is not answered yet: it may be made again, or parked for `park_ms` (0: it is not). A
-- worker has another sequence of requests, with one more of them under way, where its incarnation ends in `~2`.
-- Returns a status word, the claims, and the ms until the next job is due (-1: none).
function claim_once(worker, request, queues, limit, lease_ms, floor, park_ms, inbox, begins)
  local key = P .. 'worker:' .. worker .. ':claim' .. (string.match(request, '~%d') or '')
  local last, held, parked, handed, asked =
    unpack(redis.call('HMGET', key, 'request', 'claims', 'parked', 'handed', 'inbox'))
  if limit == 0 and (last ~= request or asked ~= inbox) then
    return 'EMPTY', {}, -1 -- another one is parked, or it was made again through another inbox: it is answered there
  end
  if last and is_overtaken(request, last) then
    return 'STALE', {}, -1
  end
  if handed then -- its worker lives, and gets here what it may not have heard of
    redis.pcall('ZREM', P .. 'handed', handed .. ' ' .. worker .. ' ' .. last)
    redis.call('HDEL', key, 'handed')
  end
  if last == request and held ~= '' then
    if asked ~= inbox then
      redis.call('HSET', key, 'inbox', '') -- two answers bring these claims now: neither is withdrawn
    end
    redis.call('PEXPIRE', key, int(2 * tonumber(lease_ms)))
    local claims = claims_held(held, worker, lease_ms)
    flush()
    return 'CLAIMED', claims, -1
  end
  if parked and parked ~= '' then
    redis.call('HSET', key, 'parked', '')
  end
  local due_left = promote(DUE_BUDGET)
  flush()
  local claims, exhausted = claim(worker, queues, limit, lease_ms, floor, begins)
  flush()
  if #claims == limit or exhausted then
    hint_left(queues)
  end
  if #claims > 0 then
    redis.call('HSET', key, 'request', request, 'inbox', inbox, 'claims', held_text(claims))
    redis.call('PEXPIRE', key, int(2 * tonumber(lease_ms)))
    return 'CLAIMED', claims, next_due_ms()
  end
  if exhausted or due_left then
    return 'MORE', claims, 0
  end
  if park_ms > 0 then
    park(worker, key, request, queues, limit, lease_ms, floor, park_ms, inbox)
    return 'PARKED', claims, next_due_ms()
  end
  return 'EMPTY', claims, next_due_ms()
end
end
