-- claims: move pending jobs to running, leased to one worker — the reliable queue in one step.

local CLAIM_FIELDS = {
  'status', 'queue', 'priority', 'attempts', 'workflow', 'command', 'argv', 'timeout_ms', 'env', 'cwd',
}
local STALE_BUDGET = 1000 -- ids of cancelled or deleted jobs dropped per call; more of them answer MORE, never EMPTY
local DUE_BUDGET = 100

-- What the worker gets of one claim; false where a field is unset.
local function claim_row(id, fence, attempt, row)
  return { id, fence, attempt, row[2] or 'default', row[6], row[7], row[8], row[9], row[10] }
end

-- Make due jobs pending; returns whether more are due.
local function promote(limit)
  local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', int(NOW), 'LIMIT', '0', int(limit))
  for _, id in ipairs(due) do
    local job = read(id)
    if job and job.status == 'scheduled' then
      redis.call('HSET', job_key(id), 'status', 'pending')
      move(job, 'pending')
    else
      index(P .. 'due', id, false)
    end
  end
  return #due == limit
end

-- Milliseconds until the next job is due; -1 when none is scheduled.
local function next_due_ms()
  local first = redis.call('ZRANGE', P .. 'due', '0', '0', 'WITHSCORES')
  return first[2] and math.max(0, tonumber(first[2]) - NOW) or -1
end

-- Fences only grow, also when Redis restarts from an older state: never below the clock nor what the caller has seen.
local function next_fence(floor)
  local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
  return math.max(last, NOW - 1, floor)
end

-- LMPOP <9 lists of the queue, highest priority first> LEFT COUNT n, the count still to be filled in.
local function pop_call(queue)
  local call = { 'LMPOP', '9' }
  for priority = 9, 1, -1 do
    call[#call + 1] = queue_key(queue) .. ':pending:' .. priority
  end
  call[12], call[13] = 'LEFT', 'COUNT'
  return call
end

local function start(id, row, worker, fence, lease_ms)
  local attempt = (tonumber(row[4] or 0) or 0) + 1
  local key = job_key(id)
  redis.call('HSET', key, 'status', 'running', 'attempts', int(attempt), 'fence', int(fence),
    'worker', worker, 'started_at', int(NOW))
  redis.call('SET', key .. ':heartbeat', worker .. ' ' .. int(fence) .. ' ' .. int(NOW), 'PX', lease_ms)
  index(P .. 'leases', id, NOW + tonumber(lease_ms))
  local job = { queue = row[2] or 'default', workflow = row[5] }
  count_job(job, 'pending', -1)
  count_job(job, 'running', 1)
  append(moves, 'running', id)
  return claim_row(id, int(fence), attempt, row)
end

-- Pop up to `limit` jobs from the queues, the first queue first, higher priorities first, else in order.
--
-- A popped id counts only if its hash says that it is pending in this queue at this priority. Returns the claims and
-- whether the budget ended before the queues did.
local function claim(worker, queues, limit, lease_ms, floor)
  local claims, budget = {}, limit + STALE_BUDGET
  local fence = next_fence(floor)
  for queue in string.gmatch(queues, '%S+') do
    local call = pop_call(queue)
    while #claims < limit and budget > 0 do
      call[14] = int(math.min(limit - #claims, budget))
      local popped = redis.call(unpack(call))
      if not popped then
        break
      end
      local priority = string.sub(popped[1], -1)
      for _, id in ipairs(popped[2]) do
        budget = budget - 1
        local row = redis.pcall('HMGET', job_key(id), unpack(CLAIM_FIELDS))
        if type(row) == 'table' and row[1] == 'pending' and (row[2] or 'default') == queue
          and (row[3] or '5') == priority then
          fence = fence + 1
          claims[#claims + 1] = start(id, row, worker, fence, lease_ms)
        end
      end
    end
  end
  if #claims > 0 then
    redis.call('HSET', KEYS[1], 'fence', int(fence))
  end
  return claims, budget <= 0
end

-- Who leaves work behind wakes the next worker. Call it after `flush`.
local function hint_left(queues)
  for queue in string.gmatch(queues, '%S+') do
    if tonumber(redis.call('HGET', queue_key(queue), 'pending') or 0) > 0 then
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

-- What an equal, earlier request got and still holds.
local function claims_held(text)
  local claims = {}
  for id, fence in string.gmatch(text, '(%S+) (%S+)') do
    local row = redis.call('HMGET', job_key(id), unpack(CLAIM_FIELDS))
    if row[1] == 'running' and redis.call('HGET', job_key(id), 'fence') == fence then
      claims[#claims + 1] = claim_row(id, fence, tonumber(row[4]), row)
    end
  end
  return claims
end

-- Answer a claim request once: a repeat gets the same claims, an older one that was overtaken gets none.
--
-- An empty answer is remembered only if the caller had a reply lost before (`remember`): then a copy of that call may
-- still be on its way. Returns a status word, the claims, and the ms until the next job is due (-1: none).
local function claim_once(worker, request, queues, limit, lease_ms, floor, remember)
  local key = P .. 'worker:' .. worker .. ':claim'
  local last = redis.call('HMGET', key, 'request', 'claims')
  if last[1] == request then
    return 'CLAIMED', claims_held(last[2]), -1
  end
  if last[1] and is_overtaken(request, last[1]) then
    return 'STALE', {}, -1
  end
  local due_left = promote(DUE_BUDGET)
  flush()
  local claims, exhausted = claim(worker, queues, limit, lease_ms, floor)
  flush()
  if #claims > 0 or remember then
    local held = {}
    for i, row in ipairs(claims) do
      held[i] = row[1] .. ' ' .. row[2]
    end
    redis.call('HSET', key, 'request', request, 'claims', table.concat(held, ' '))
    redis.call('PEXPIRE', key, int(2 * tonumber(lease_ms)))
  end
  if #claims == limit or exhausted then
    hint_left(queues)
  end
  if #claims == 0 and (exhausted or due_left) then
    return 'MORE', claims, 0
  end
  return #claims > 0 and 'CLAIMED' or 'EMPTY', claims, next_due_ms()
end
