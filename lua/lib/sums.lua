-- sums: whether what is counted and limited is a number, and the right one (see inspection).

do
  local LIMITS = { 'max_pending', 'max_running', 'rate_jobs', 'rate_per_ms' }
  local STATES = { 'pending', 'scheduled', 'blocked', 'running', 'done', 'failed', 'cancelled', 'skipped' }
  local COUNTS = { 'reserved', 'held', unpack(STATES) }
  local OF_KEY = { 'limit', 'since', 'jobs', 'seq', 'front', 'turn', 'rest' } -- of a concurrency key
  local OF_ALL = { 'waiting', 'max_pending', 'max_pending_total', 'recounts', 'rollbacks', 'rolled_back_at', 'full', 'fence' }
  local MANY_QUEUES = 1000

  local function is_number(value)
    return string.find(value, '^%-?%d+$') and math.abs(tonumber(value)) < 2 ^ 52
  end

  -- Fields that are no number stop whoever counts; a count that is removed is made anew from the jobs.
  local function check_numbers(key, fields, fault)
    for _, field in ipairs(fields) do
      local value = redis.call('HGET', key, field)
      if value and not is_number(value) then
        fault('malformed', field .. ' is ' .. value, function()
          redis.call('HDEL', key, field)
        end)
      end
    end
  end

  -- A queue, by its name: whether claims know of its gates, and what it is limited to can be read.
  function INSPECT.queue(name, fault)
    local key = queue_key(name)
    check_numbers(key, LIMITS, fault)
    check_numbers(key, COUNTS, fault)
    local jobs, per_ms = unpack(redis.call('HMGET', key, 'rate_jobs', 'rate_per_ms'))
    if not jobs ~= not per_ms then -- a claim can't do with one of both
      fault('malformed', 'half a rate', function()
        redis.call('HDEL', key, 'rate_jobs', 'rate_per_ms')
      end)
    end
    local gates = redis.call('HMGET', key, 'paused', 'max_running', 'rate_jobs')
    if (gates[1] or gates[2] or gates[3]) and not is_gated(name) then
      fault('ungated', name, function()
        note_gate(name, true)
        meta = nil
      end)
    end
  end

  -- A concurrency key, by its name: whether somebody will look again where some wait.
  function INSPECT.concurrency(name, fault)
    local key = SLOTS.key_of(name)
    check_numbers(key, OF_KEY, fault)
    local may_go = math.min(SLOTS.free_slots(name), SLOTS.WINDOW)
    local is_late = not redis.call('ZSCORE', P .. 'due', 'refill ' .. name)
    for _, queue in ipairs(redis.call('ZRANGE', key .. ':queues', '0', '99')) do
      local waiting = SLOTS.waiting_of(name, queue)
      if redis.call('EXISTS', waiting) == 0 then
        fault('stray-member', 'concurrency:' .. name .. ':queues', function()
          redis.call('ZREM', key .. ':queues', queue)
          redis.call('ZREM', SLOTS.keys_in(queue), name)
        end)
      elseif not redis.call('ZSCORE', SLOTS.keys_in(queue), name) then
        fault('not-listed', 'queue:' .. queue .. ':keys', function()
          redis.call('ZADD', SLOTS.keys_in(queue), '0', name)
        end)
      end
      local let_go = redis.call('ZCOUNT', waiting, '-inf', '(0')
      if is_late and let_go < may_go and redis.call('ZCOUNT', waiting, '(0', '+inf') > 0 then
        fault('held-up', queue, function()
          SLOTS.touched[name] = 'anew'
        end)
      end
    end
  end

  -- Jobs of a workflow by the counts of their states, and which of these can't be read.
  local function sum_up(key)
    local sum, wrong = 0, {}
    for i, value in ipairs(redis.call('HMGET', key, unpack(STATES))) do
      if value and not is_number(value) then
        wrong[#wrong + 1] = STATES[i]
      else
        sum = sum + tonumber(value or 0)
      end
    end
    return sum, wrong
  end

  -- The counts of a workflow and its size follow from each other, and from its list of jobs. Those of a large submission
  -- are counted when they are admitted. Returns whether something was wrong, else how many jobs are counted in no state:
  -- their keys are gone.
  local function check_size(key, fault)
    local size, listed, sum, wrong = redis.call('HGET', key, 'size'), redis.call('LLEN', key .. ':jobs'), sum_up(key)
    local right = is_number(size) and tonumber(size)
    local settled = redis.call('EXISTS', P .. 'batches') == 0
    if #wrong > 0 then
      local rest = (right or listed) - sum
      fault('malformed', wrong[1] .. ' is no number', settled and #wrong == 1 and rest >= 0 and function()
        redis.call('HSET', key, wrong[1], int(rest))
      end or nil)
    elseif right and sum > right and listed == right then
      fault('malformed', int(sum) .. ' jobs are counted of ' .. size, function()
        local rest = sum - right
        for _, status in ipairs({ 'done', 'cancelled', 'skipped', 'failed' }) do
          local some = math.min(rest, math.max(0, tonumber(redis.call('HGET', key, status) or 0)))
          redis.call('HINCRBY', key, status, int(0 - some))
          rest = rest - some
        end
      end)
    elseif not right or sum > right or settled and sum < right and listed == sum then
      fault('malformed', 'its size is ' .. size .. ', with ' .. int(sum) .. ' jobs', function()
        redis.call('HSET', key, 'size', int(sum))
      end)
    else
      return false, settled and right - sum or 0
    end
    return true
  end

  local function check_stop(id, fault)
    local entry, list = 'workflow:' .. id, P .. 'propagate'
    local at, stopped = unpack(redis.call('HMGET', workflow_key(id), 'stop_at', 'stopped'))
    if at and not (is_number(at) and string.find(stopped or '', '^%a+ ?%w*$')) then
      fault('malformed', 'its stop is at ' .. at, function()
        redis.call('HSET', workflow_key(id), 'stopped', string.find(stopped or '', '^failed') and stopped or 'cancelled')
        redis.call('HDEL', workflow_key(id), 'stop_at')
        redis.call('LREM', list, '1', entry)
        go_on_stopping(id, 0)
      end)
    elseif at and redis.call('LLEN', list) <= 1000 and not redis.call('LPOS', list, entry) then
      fault('stuck-walk', entry, function()
        redis.call('RPUSH', list, entry)
      end)
    end
  end

  -- A workflow, by its id.
  function INSPECT.workflow(id, fault)
    local key = workflow_key(id)
    if redis.call('HEXISTS', key, 'size') == 0 then
      return -- it has not begun
    end
    check_stop(id, fault)
    local wrong, missing = check_size(key, fault)
    if wrong then
      return -- nothing can be said of the rest
    elseif missing > 0 then
      fault('jobs-gone', int(missing) .. ' of ' .. redis.call('HGET', key, 'size'), function()
        count(key, 'cancelled', missing)
        count(key, 'swept', missing)
        final_may_start(id, true)
      end)
    elseif final_may_start(id) then
      fault('unsettled', 'its final job waits for nobody', function()
        final_may_start(id, true)
      end)
    end
  end

  -- What all queues have in common: how many jobs wait in them together, and what of `meta` can't be read. `settled` is the
  -- item where the counts of queues are right.
  function INSPECT.totals(item, fault)
    check_numbers(KEYS[1], OF_ALL, fault) -- without a last fence, the clock and the jobs say it
    if item ~= 'settled' or redis.call('ZCARD', P .. 'queues') > MANY_QUEUES or redis.call('EXISTS', P .. 'batches') == 1 then
      return -- what is staged may be in queues that are not listed yet
    end
    local waiting = 0
    for _, queue in ipairs(redis.call('ZRANGE', P .. 'queues', '0', '-1')) do -- bound: MANY_QUEUES
      for _, number in ipairs(redis.call('HMGET', queue_key(queue), 'pending', 'scheduled', 'blocked', 'reserved')) do
        waiting = waiting + tonumber(number or 0)
      end
    end
    local said = redis.call('HGET', KEYS[1], 'waiting') or '0'
    if tonumber(said) ~= waiting then
      fault('miscounted', 'waiting is ' .. said .. ', not ' .. int(waiting), function()
        redis.call('HSET', KEYS[1], 'waiting', int(waiting))
      end)
    end
  end

  local recounts -- how often counts were corrected before this call

  -- `<difference> <recounts> <field> <key>`: a count that was found to be wrong by so much, as of one moment. Differences
  -- stay, unless another doctor has corrected counts since: `recounts` is how often that was done by then.
  function INSPECT.count(item, fault)
    local by, seen, field, name = string.match(item, '^(%-?%d+) (%d+) (%S+) (.+)$')
    local said = redis.call('HGET', P .. name, field) or '0'
    recounts = recounts or redis.call('HGET', KEYS[1], 'recounts') or '0'
    local mend = seen == recounts and function()
      redis.call('HINCRBY', KEYS[1], 'recounts', '1')
      if is_number(said) then
        redis.call('HINCRBY', P .. name, field, int(0 - tonumber(by)))
      else -- it was taken for 0
        redis.call('HSET', P .. name, field, int(0 - tonumber(by)))
      end
    end
    fault(is_number(said) and 'miscounted' or 'malformed', field .. ' is ' .. said .. ', by ' .. by .. ' too much', mend or nil)
  end
end
