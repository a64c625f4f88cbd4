-- leftovers: whether indexes, locks and other keys belong to what they name (see inspection). Keys are given without their
-- prefix.

do
  local REBUILT = 'set-aside:' -- in front of the name of a key of the wrong type

  local function has_job(id)
    return redis.call('EXISTS', job_key(id)) == 1
  end

  local function is_due(member)
    local kind, id = string.match(member, '^(%a+) (.*)$')
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
    queues = function(name)
      return #name <= 64 and string.find(name, '^[%w_.%-]+$')
    end,
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
    local name, member = string.match(item, '^(%S+) (.*)$')
    local queue, status = string.match(name, '^queue:(.+):(%a+)$')
    local belongs = BELONGS[name]
    if queue then
      local job = read(member)
      belongs = job and job.status == status and job.queue == queue
    elseif string.find(name, '^jobs:') then
      local job = read(member)
      belongs = job and job.status == string.sub(name, 6)
    else
      belongs = belongs(member)
    end
    if belongs then
      return
    elseif redis.call('ZSCORE', P .. name, member) then
      fault('stray-member', 'in ' .. name, function()
        redis.call('ZREM', P .. name, member)
      end)
    end
  end

  -- `<concurrency key> <id>`: whether who has a slot runs.
  function INSPECT.slot(item, fault)
    local name, id = string.match(item, '^(%S+) (.*)$')
    local running, job = SLOTS.key_of(name) .. ':running', read(id)
    if not (job and job.status == 'running' and SLOTS.said_by(id).name == name) and redis.call('ZSCORE', running, id) then
      fault('leaked-slot', id, function()
        redis.call('ZREM', running, id)
        SLOTS.touched[name] = 'anew'
      end)
    end
  end

  -- `<queue> <concurrency key> <id>`: whether who stands in a line waits.
  function INSPECT.waiting(item, fault)
    local queue, name, id = string.match(item, '^(%S+) (%S+) (.*)$')
    local job = read(id)
    local waits = job and job.status == 'pending' and job.queue == queue and SLOTS.said_by(id).name == name
    if not waits and redis.call('ZSCORE', SLOTS.waiting_of(name, queue), id) then
      fault('stray-member', 'concurrency:' .. name .. ':waiting:' .. queue, function()
        SLOTS.leave_line(name, queue, id)
      end)
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
    local value, job = redis.call('GETRANGE', key, '0', '999'), holder_of(key)
    if redis.call('EXISTS', key) == 0 or not job and is_given_up(value) then
      return
    end
    local said = job and parse_unique(job.unique)
    local needed = said and said.name == name and not (job.status == 'running' and said.till == 'started')
    if not needed then
      fault('leaked-lock', value, function()
        redis.call('DEL', key)
      end)
    end
  end

  -- An Idempotency-Key, with its scope: whether its entry can be read (see submissions and schedules).
  function INSPECT.idempotency(name, fault)
    local key = P .. 'idempotency:' .. name
    local value = redis.call('GETRANGE', key, '0', '999')
    local gone = value == '' and redis.call('EXISTS', key) == 0
    if not gone and not string.find(value, '^%S+ %S+ %d+ ?%S*$') and not string.find(value, '^%S+ %d+ ?%S*$') then
      fault('malformed', value, function()
        redis.call('DEL', key)
      end)
    end
  end

  -- A large submission, by its id.
  function INSPECT.batch(id, fault)
    local key = P .. 'batch:' .. id
    local state, workflow = unpack(redis.call('HMGET', key, 'state', 'workflow'))
    local at = tonumber(redis.call('ZSCORE', P .. 'batches', id) or '')
    if redis.call('EXISTS', key) == 0 then
      return
    elseif state ~= 'staging' and state ~= 'open' and state ~= 'aborted' then -- who has opened it has written the workflow
      fault('malformed', 'its state is ' .. (state or 'missing'), function()
        redis.call('HSET', key, 'state', workflow and 'open' or 'aborted')
      end)
    elseif state == 'open' and redis.call('EXISTS', job_key(id)) == 1 then -- it has the id of its first job
      local right = redis.call('HGET', job_key(id), 'workflow') or ''
      if right ~= workflow then
        fault('malformed', 'its workflow is ' .. (workflow or 'missing'), function()
          redis.call('HSET', key, 'workflow', right)
        end)
      end
    end
    if (not at or at > NOW + 60000) and redis.call('PTTL', key) < 0 then
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
    local at = tonumber(redis.call('ZSCORE', P .. 'schedules:due', name) or '')
    local latest = row[2] and NOW + 60000 or tonumber(row[1] or '') or 0
    if (row[1] or row[2]) and not row[3] and (not at or at > latest) then
      fault('not-due', 'schedules:due', function()
        redis.call('ZADD', P .. 'schedules:due', row[2] and NOW_TEXT or int(latest), name)
      end)
    end
  end

  -- `<ms> <version> <schedule>`: one that has no next time, but should have this one.
  function INSPECT.occurrence(item, fault)
    local at, version, name = string.match(item, '^(%d+) (%S+) (.+)$')
    local key = P .. 'schedule:' .. name
    local row = redis.call('HMGET', key, 'next', 'queued', 'paused', 'version')
    if row[4] == version and not (row[1] or row[2] or row[3]) then
      fault('not-due', 'its next time is missing', function()
        redis.call('HSET', key, 'next', at)
        redis.call('ZADD', P .. 'schedules:due', at, name)
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
