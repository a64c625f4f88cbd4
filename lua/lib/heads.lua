-- heads: whether what is known of an array fits its job and its tasks (see inspection).

local HEADS = {}

do
  local STATES = { 'pending', 'scheduled', 'running', 'done', 'failed', 'cancelled', 'skipped' }
  local IS_STATE = {}
  for _, state in ipairs(STATES) do
    IS_STATE[state] = true
  end
  local SAID = { array_size = 'size', array_parallel = 'parallel', array_follows = 'follows' } -- by its job, too
  local FEW = 1000 -- so many tasks that are never to be made are looked at one by one
  local to_take = 1000 -- tasks that are counted one by one, in one call

  local function is_in(zset, member)
    return redis.call('ZSCORE', zset, member)
  end

  local function is_number(value)
    return string.find(value, '^%-?%d+$') and math.abs(tonumber(value)) < 2 ^ 52
  end

  local function put(key, field, value)
    if value then
      redis.call('HSET', key, field, value)
    else
      redis.call('HDEL', key, field)
    end
  end

  local function can_be(field, value)
    if field == 'follows' then
      return not value or string.find(value, '^%w+ %a+$')
    end
    return not value and field == 'parallel' or value and is_number(value) and tonumber(value) > 0
  end

  -- What both say is put right from the job, or the other way where that can't be. Returns whether something was wrong.
  local function check_said(head, fault)
    local wrong = false
    for name, field in pairs(SAID) do
      local is, right = redis.call('HGET', array_key(head.id), field), head[name]
      local from_job = can_be(field, right)
      if is ~= right then
        wrong = true
        fault('malformed', field .. ' is ' .. (is or 'missing'), (from_job or can_be(field, is)) and function()
          if from_job then
            put(array_key(head.id), field, right)
          else
            put(job_key(head.id), name, is)
          end
          touch(head.id)
        end or nil)
      end
    end
    return wrong
  end

  -- How many tasks there must be by the counts of their states, without one of these; `wrong`: those that can't be read.
  local function sum_up(array)
    local sum, wrong = 0, {}
    for i, value in ipairs(redis.call('HMGET', array_key(array), unpack(STATES))) do
      if value and not is_number(value) then
        wrong[#wrong + 1] = STATES[i]
      else
        sum = sum + tonumber(value or 0)
      end
    end
    return sum, wrong
  end

  -- Tasks that were made, or are never to be.
  local function known_tasks(array, row)
    local dropped = redis.call('HGET', array_key(array), 'dropped')
    return dropped and row.size or row.made + redis.call('SCARD', array_key(array) .. ':skip')
  end

  -- How its tasks stand, by their own keys: number per state, how many there are, and how many places they take.
  local function take_stock(head, size)
    local states, number, places = {}, 0, 0
    for place = 0, size - 1 do
      local said = redis.pcall('HGET', job_key(task_id(head, place)), 'status')
      local state = IS_STATE[said] and said or was_done(head.id, place) and 'done' -- a damaged one is as good as gone
      if state then
        states[state], number, places = (states[state] or 0) + 1, number + 1, place + 1
      end
    end
    return states, number, places
  end

  -- Write down anew what is known of an array. What is missing before the last task was cancelled, and has no key.
  local function rebuild(head)
    local key, size, skips = array_key(head.id), tonumber(head.array_size), redis.call('SCARD', array_key(head.id) .. ':skip')
    local states, number, places = take_stock(head, size)
    local made = head.array_follows and number or places
    local stops = TERMINAL[head.status] or head.cancel_requested_at
    local as, rest = head.status == 'skipped' and 'skipped' or 'cancelled', stops and math.max(0, size - made - skips) or 0
    states.cancelled = (states.cancelled or 0) + made - number + skips
    states[as] = (states[as] or 0) + rest
    for _, state in ipairs(STATES) do
      put(key, state, states[state] and int(states[state]))
    end
    redis.call('HSET', key, 'size', int(size), 'made', int(rest > 0 and size or made))
    put(key, 'parallel', head.array_parallel)
    put(key, 'follows', head.array_follows)
    put(key, 'dropped', rest > 0 and int(rest) .. ' ' .. as .. ' ' .. int(made))
    if number > 0 then
      redis.call('HSETNX', key, 'begun', '1')
    end
    if number > 0 or head.status == 'blocked' and redis.call('EXISTS', job_key(head.id) .. ':parents') == 0 then
      redis.call('HSET', key, 'started', '1')
    end
    if stops and not TERMINAL[head.status] then
      redis.call('HSET', key, 'walk', 'cancel 0')
      work_on_array(head.id)
    end
    touch(head.id)
  end

  -- What rebuilds it; nil where that is too much work.
  local function rebuilder(head)
    local size = can_be('size', head.array_size) and tonumber(head.array_size) or math.huge
    return size <= to_take and function()
      to_take = to_take - size
      rebuild(head)
    end or nil
  end

  -- Whether its numbers are some, and fit each other.
  local function check_numbers(head, row, fault)
    local key, sum, wrong = array_key(head.id), sum_up(head.id)
    local made = redis.call('HGET', key, 'made')
    local missing = known_tasks(head.id, row) - sum
    if #wrong > 0 then
      fault('malformed', wrong[1] .. ' is no number', rebuilder(head))
    elseif not is_number(made) or row.made > row.size or row.made < 0 or missing < 0 then
      fault('malformed', 'made is ' .. made .. ', with ' .. int(sum) .. ' tasks', rebuilder(head))
    elseif missing > 0 then
      fault('jobs-gone', int(missing) .. ' of ' .. int(row.size) .. ' tasks', rebuilder(head) or function()
        count(key, 'cancelled', missing)
        touch(head.id)
      end)
    else
      return false
    end
    return true
  end

  -- What is to be done with each task: `cancel 5` and the like.
  local function check_walk(head, row, fault)
    local bad = row.walk and not string.find(row.walk, '^%a+ %d+$')
    if bad then
      fault('malformed', 'its walk is ' .. row.walk, function()
        redis.call('HDEL', array_key(head.id), 'walk')
        touch(head.id)
        if head.cancel_requested_at then
          stop_array(head)
        elseif row.follows then
          FOLLOWS.all(head.id)
        end
      end)
    end
    return bad
  end

  -- Members of the set of tasks that are never to be made.
  local function check_skips(head, row, fault)
    local skip, found = array_key(head.id) .. ':skip', false
    if redis.call('SCARD', skip) > FEW then
      return false
    end
    for _, place in ipairs(redis.call('SMEMBERS', skip)) do -- bound: FEW
      local at = string.find(place, '^%d+$') and tonumber(place)
      if not at or at >= row.size or at < row.prefix and not redis.call('HGET', array_key(head.id), 'dropped') then
        found = true
        fault('stray-member', 'array:' .. head.id .. ':skip', function()
          redis.call('SREM', skip, place)
        end)
      end
    end
    return found
  end

  -- Whether the array that this one follows does not know of it.
  local function is_unknown(head, row)
    local followed, when = string.match(row.follows or '', '^(%S+) (%S+)$')
    if not followed or TERMINAL[head.status] or redis.call('EXISTS', array_key(followed)) == 0 then
      return nil
    end
    if redis.call('LPOS', array_key(followed) .. ':followers', head.id .. ' ' .. when) then -- bound: the arrays that follow one
      return nil
    end
    return followed, when
  end

  local function check_tasks(head, row, fault)
    local over = row.ended >= row.size and row.turns == 0
    local to_make = row.turns + (row.follows and 0 or row.size - row.made)
    local idle = row.started and not over and row.waiting + row.running == 0 and to_make > 0
    local followed, when = is_unknown(head, row)
    if followed then
      fault('unknown-child', followed, function()
        FOLLOWS.register(followed, head.id, when)
        FOLLOWS.all(head.id)
      end)
    elseif FOLLOWS.has_forgotten(row) then
      fault('stuck-array', 'it waits for tasks that have ended', function()
        FOLLOWS.all(head.id)
      end)
    elseif row.walk and not is_in(P .. 'arrays', head.id) then
      fault('stuck-array', row.walk, function()
        work_on_array(head.id)
      end)
    elseif not row.walk and (over ~= (TERMINAL[head.status] or false) or idle and not is_in(P .. 'arrays', head.id)) then
      fault('stuck-array', int(row.ended) .. ' of ' .. int(row.size) .. ' tasks have ended', function()
        touch(head.id)
      end)
    end
  end

  -- Look at an array by its job; returns whether all that is known of it is gone. One thing at a time: with what is wrong
  -- first, the others can't be judged.
  function HEADS.check(head, fault)
    if redis.call('HEXISTS', array_key(head.id), 'made') == 0 then
      fault('array-gone', array_key(head.id), rebuilder(head))
      return true
    elseif not check_said(head, fault) then
      local row = array_row(head.id)
      if not (check_walk(head, row, fault) or check_skips(head, row, fault) or check_numbers(head, row, fault)) then
        check_tasks(head, row, fault)
      end
    end
    return false
  end

  -- `<array> <place>`: whether a task that waits for its turn can have one.
  function HEADS.turn(item, fault)
    local array, place = string.match(item, '^(%S+) (.*)$')
    local size = tonumber(redis.call('HGET', array_key(array), 'size') or '')
    local at = string.find(place, '^%d+$') and tonumber(place)
    if size and not (at and at < size) and redis.call('ZSCORE', array_key(array) .. ':turns', place) then
      fault('stray-member', 'array:' .. array .. ':turns', function()
        redis.call('ZREM', array_key(array) .. ':turns', place)
        touched[array] = true
      end)
    end
  end
end
