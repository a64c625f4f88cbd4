-- leftovers: whether indexes, locks and other keys belong to what they name (see inspection). Keys are given without their
-- prefix.

do
  local REBUILT = 'set-aside:' -- in front of the name of a key of the wrong type

  local function remove(zset, member)
    return function()
      redis.call('ZREM', zset, member)
    end
  end

  local function has_job(id)
    return redis.call('EXISTS', job_key(id)) == 1
  end

  local function is_due(member)
    local kind, id = string.match(member, '^(%a+) (.+)$')
    if kind == 'refill' then
      return redis.call('EXISTS', SLOTS.key_of(id)) == 1
    end
    local job = read(kind and id or member)
    if not kind then
      return job and job.status == 'scheduled'
    end
    return job and not TERMINAL[job.status] and job[kind .. '_at']
  end

  local BELONGS = { -- index → whether a member belongs there
    jobs = has_job,
    due = is_due,
    leases = function(id)
      local job = read(id)
      return job and job.status == 'running'
    end,
    schedules = function(name)
      return redis.call('EXISTS', P .. 'schedule:' .. name) == 1
    end,
    ['schedules:due'] = function(name)
      local row = redis.call('HMGET', P .. 'schedule:' .. name, 'next', 'queued', 'paused')
      return (row[1] or row[2]) and not row[3]
    end,
    ['actions:open'] = function(id)
      return redis.call('HGET', P .. 'action:' .. id, 'state') == 'running'
    end,
    batches = function(id)
      return redis.call('EXISTS', P .. 'batch:' .. id) == 1
    end,
  }

  -- `<index> <member>`: whether the member says that it belongs there.
  function INSPECT.member(item, fault)
    local name, member = string.match(item, '^(%S+) (.+)$')
    local queue, status = string.match(name, '^queue:(.+):(%a+)$')
    local belongs = BELONGS[name]
    if queue then
      local job = read(member)
      belongs = job and job.status == status and job.queue == queue
    else
      belongs = belongs(member)
    end
    if not belongs and redis.call('ZSCORE', P .. name, member) then
      fault('stray-member', 'in ' .. name, remove(P .. name, member))
    end
  end

  -- `<id> <concurrency key>`: whether who has a slot runs.
  function INSPECT.slot(item, fault)
    local id, name = string.match(item, '^(%S+) (.+)$')
    local running, job = SLOTS.key_of(name) .. ':running', read(id)
    if not (job and job.status == 'running' and SLOTS.said_by(id).name == name) and redis.call('ZSCORE', running, id) then
      fault('leaked-slot', id, function()
        redis.call('ZREM', running, id)
        SLOTS.touched[name] = 'anew'
      end)
    end
  end

  -- `<id> <queue> <concurrency key>`: whether who stands in a line waits.
  function INSPECT.waiting(item, fault)
    local id, queue, name = string.match(item, '^(%S+) (%S+) (.+)$')
    local job = read(id)
    local waits = job and job.status == 'pending' and job.queue == queue and SLOTS.said_by(id).name == name
    if not waits and redis.call('ZSCORE', SLOTS.waiting_of(name, queue), id) then
      fault('stray-member', 'concurrency:' .. name .. ':waiting:' .. queue, function()
        SLOTS.leave_line(name, queue, id)
      end)
    end
  end

  -- A concurrency key, by its name: whether somebody will look again where some wait.
  function INSPECT.concurrency(name, fault)
    local key = SLOTS.key_of(name)
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
      if redis.call('ZCOUNT', waiting, '(0', '+inf') > 0 and not redis.call('ZSCORE', P .. 'due', 'refill ' .. name) then
        fault('held-up', queue, function()
          SLOTS.touched[name] = 'anew'
        end)
      end
    end
  end

  -- Whether the holder of a unique key belongs to a large submission that is being given up, step by step.
  local function is_given_up(value)
    local job = read(string.match(value or '', '^%S*'))
    return job and job.batch and redis.call('HGET', P .. 'batch:' .. job.batch, 'state') == 'aborted'
  end

  -- A unique key, by its name: whether its holder still needs it.
  function INSPECT.unique(name, fault)
    local key = P .. 'unique:' .. name
    local value, job = redis.call('GET', key), holder_of(key)
    if not job and is_given_up(value) then
      return
    end
    local said = job and parse_unique(job.unique)
    local needed = said and said.name == name and not (job.status == 'running' and said.till == 'started')
    if value and not needed then
      fault('leaked-lock', value, function()
        redis.call('DEL', key)
      end)
    end
  end

  local LIMITS = { 'max_pending', 'max_running', 'rate_jobs', 'rate_per_ms' }
  local COUNTS = { 'pending', 'scheduled', 'blocked', 'running', 'done', 'failed', 'cancelled', 'skipped', 'reserved', 'held' }

  -- Fields that are no number stop whoever counts; a count that is removed is made anew from the jobs.
  local function check_numbers(key, fields, fault)
    for _, field in ipairs(fields) do
      local value = redis.call('HGET', key, field)
      if value and not string.find(value, '^%-?%d+$') then
        fault('malformed', field .. ' ' .. value, function()
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

  -- An Idempotency-Key, with its scope: whether its entry can be read (see submissions and schedules).
  function INSPECT.idempotency(name, fault)
    local key = P .. 'idempotency:' .. name
    local value = redis.call('GET', key) or ''
    if value ~= '' and not string.find(value, '^%S+ %S+ %d+ ?%S*$') and not string.find(value, '^%S+ %d+ ?%S*$') then
      fault('malformed', value, function()
        redis.call('DEL', key)
      end)
    end
  end

  -- Of the jobs of a workflow, those that are counted in no state: their keys are gone. Those of a large submission are
  -- counted when they are admitted.
  local function missing_jobs(key)
    if redis.call('EXISTS', P .. 'batches') == 1 then
      return 0
    end
    local row = redis.call('HMGET', key, 'size', 'pending', 'scheduled', 'blocked', 'running', 'done', 'failed', 'cancelled', 'skipped')
    local missing = tonumber(row[1])
    for i = 2, 9 do
      missing = missing - tonumber(row[i] or 0)
    end
    return missing
  end

  -- A workflow, by its id.
  function INSPECT.workflow(id, fault)
    local key = workflow_key(id)
    local row = redis.call('HMGET', key, 'stop_at', 'stopped', 'size')
    if not row[3] then
      return -- it has not begun
    end
    if row[1] and redis.call('LLEN', P .. 'propagate') <= 1000 and not redis.call('LPOS', P .. 'propagate', 'workflow:' .. id) then
      fault('stuck-walk', 'workflow:' .. id, function()
        redis.call('RPUSH', P .. 'propagate', 'workflow:' .. id)
      end)
    end
    local missing = missing_jobs(key)
    if missing > 0 then
      fault('jobs-gone', int(missing) .. ' of ' .. row[3], function()
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

  -- A large submission, by its id.
  function INSPECT.batch(id, fault)
    local state = redis.call('HGET', P .. 'batch:' .. id, 'state')
    if state and not redis.call('ZSCORE', P .. 'batches', id) and redis.call('PTTL', P .. 'batch:' .. id) < 0 then
      fault('not-listed', 'batches', function()
        redis.call('ZADD', P .. 'batches', NOW_TEXT, id)
      end)
    end
  end

  -- A schedule, by its name.
  function INSPECT.schedule(name, fault)
    local row = redis.call('HMGET', P .. 'schedule:' .. name, 'next', 'queued', 'paused', 'version')
    if not row[4] then
      return
    end
    if not redis.call('ZSCORE', P .. 'schedules', name) then
      fault('not-listed', 'schedules', function()
        redis.call('ZADD', P .. 'schedules', '0', name)
      end)
    end
    if (row[1] or row[2]) and not row[3] and not redis.call('ZSCORE', P .. 'schedules:due', name) then
      fault('not-due', 'schedules:due', function()
        redis.call('ZADD', P .. 'schedules:due', row[1] or NOW_TEXT, name)
      end)
    end
  end

  -- A bulk action, by its id.
  function INSPECT.action(id, fault)
    local state = redis.call('HGET', P .. 'action:' .. id, 'state')
    if state == 'running' and not redis.call('ZSCORE', P .. 'actions:open', id) then
      fault('not-listed', 'actions:open', function()
        redis.call('ZADD', P .. 'actions:open', NOW_TEXT, id)
      end)
    end
  end

  local function is_orphan(name)
    local id, part = string.match(name, '^job:(%w+):(.+)$')
    if not id then
      return not has_job(string.match(name, '^array:(%w+)'))
    end
    local fence = string.match(part, '^output:(%d+)$')
    local outputs = fence and redis.pcall('HGET', job_key(id), 'outputs')
    return not has_job(id) or fence and not string.find(' ' .. tostring(outputs), ' ' .. fence .. ':', 1, true)
  end

  -- A key that belongs to a job, by its name: whether there is that job. What has a time to live goes by itself.
  function INSPECT.orphan(name, fault)
    if redis.call('PTTL', P .. name) == -1 and is_orphan(name) then
      fault('orphan', '', function()
        redis.call('UNLINK', P .. name)
      end)
    end
  end

  -- `<ms> <key>`: whether a key that has to go by itself does; it is given so long.
  function INSPECT.lasting(item, fault)
    local ms, name = string.match(item, '^(%d+) (.+)$')
    if redis.call('PTTL', P .. name) == -1 then
      fault('no-ttl', '', function()
        redis.call('PEXPIRE', P .. name, ms)
      end)
    end
  end

  -- `<type> <key>`: whether a key is of its type. One that is not is set aside: from what jobs say, it is made anew.
  function INSPECT.type(item, fault)
    local kind, name = string.match(item, '^(%a+) (.+)$')
    local is = redis.call('TYPE', P .. name).ok
    if is ~= kind and is ~= 'none' then
      fault('wrong-type', 'a ' .. is .. ' in place of a ' .. kind, function()
        redis.call('RENAME', P .. name, P .. REBUILT .. name)
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
      redis.call('HINCRBY', P .. name, field, int(0 - tonumber(by)))
      redis.call('HINCRBY', KEYS[1], 'recounts', '1')
    end
    fault('miscounted', field .. ' is ' .. said .. ', by ' .. by .. ' too much', mend or nil)
  end

  -- An id that was passed over because a key was damaged: it is looked at again from now on.
  function INSPECT.quarantined(id, fault)
    local status = redis.pcall('HGET', job_key(id), 'status')
    if type(status) == 'table' or status and not STATUSES[status] then
      return -- that it is damaged is told of itself
    elseif redis.call('SISMEMBER', P .. 'quarantine', id) == 1 then
      fault('quarantined', '', function()
        redis.call('SREM', P .. 'quarantine', id)
      end)
    end
  end
end
