-- inspection: whether a job is where its hash says, and waits for what is still to come. INSPECT.<what>(item, fault) looks at
-- one item; it tells each fault by `fault(code, detail, mend)`, where `mend` puts it right (nil: nothing can safely).
-- What a job waits for is in lib/waits, arrays are in lib/heads, other keys in lib/leftovers; the codes are explained in workron/doctor/faults.py.

local INSPECT = {}
local STATUSES = { scheduled = true, blocked = true, pending = true, running = true }
for status in pairs(TERMINAL) do
  STATUSES[status] = true
end

do
  local stands_in = WAITS.stands_in

  local function is_in(zset, member)
    return redis.call('ZSCORE', zset, member)
  end

  local function key_of(job)
    return job.holds and string.find(job.holds, 'c', 1, true) and SLOTS.said_by(job.id).name
  end

  local function check_list(job, fault, thorough)
    local list = queue_key(job.queue) .. ':pending:' .. job.priority
    if not stands_in(list, job.id, thorough) then
      fault('not-in-list', list, function()
        append(pushes, list, job.id)
        hints[job.queue] = true
      end)
    end
  end

  -- Whether it is known how many may run, and where some wait: else nobody is let go.
  local function check_key(job, name, fault)
    local key = SLOTS.key_of(name)
    if tonumber(redis.call('HGET', key, 'limit') or 0) == 0 then
      fault('held-up', name .. ' has no limit', function()
        SLOTS.about_key(name).limit = SLOTS.said_by(job.id).limit
        SLOTS.touched[name] = 'anew'
      end)
    end
    if not is_in(key .. ':queues', job.queue) and redis.call('EXISTS', SLOTS.waiting_of(name, job.queue)) == 1 then
      fault('not-listed', 'concurrency:' .. name .. ':queues', function()
        redis.call('ZADD', key .. ':queues', '0', job.queue)
        redis.call('ZADD', SLOTS.keys_in(job.queue), '0', name)
        SLOTS.touched[name] = 'anew'
      end)
    end
  end

  local function check_line(job, name, fault, thorough)
    check_key(job, name, fault)
    local waiting, list = SLOTS.waiting_of(name, job.queue), queue_key(job.queue) .. ':pending:' .. job.priority
    local place = tonumber(is_in(waiting, job.id) or 0)
    if math.floor(math.abs(place) / SLOTS.BAND) ~= 9 - tonumber(job.priority) then
      fault('not-in-line', name, function()
        SLOTS.leave_line(name, job.queue, job.id)
        SLOTS.join_line(job)
      end)
    elseif place < 0 and not stands_in(list, job.id, thorough) then
      fault('not-in-list', list, function()
        redis.call('ZADD', waiting, int(-place), job.id)
        count(queue_key(job.queue), 'held', 1)
        SLOTS.touched[name] = 'anew'
      end)
    end
  end

  local function check_pending(job, fault, thorough)
    local name = key_of(job)
    if name then
      check_line(job, name, fault, thorough)
    else
      check_list(job, fault, thorough)
    end
  end

  local function check_running(job, fault)
    local till = is_in(P .. 'leases', job.id)
    if not till then
      fault('no-lease', job.worker or '?', function()
        index(P .. 'leases', job.id, NOW_TEXT) -- the reaper sees whether it is alive
      end)
    end
    local name = key_of(job)
    if name and not is_in(SLOTS.key_of(name) .. ':running', job.id) then
      fault('no-slot', name, function()
        redis.call('ZADD', SLOTS.key_of(name) .. ':running', NOW_TEXT, job.id)
      end)
    end
  end

  local function check_due(member, at, fault)
    local score = is_in(P .. 'due', member)
    if not score or tonumber(score) > at then
      fault('not-due', member, function()
        index(P .. 'due', member, at)
      end)
    end
  end

  local function check_timers(job, fault)
    if not has_timers(job.holds) then
      return
    end
    if job.deadline_at and not job.expired_at then
      check_due('deadline ' .. job.id, job.deadline_at, fault)
    end
    if job.expires_at and job.status ~= 'running' and job.attempts == 0 and not job.cancel_requested_at
      and not (is_array(job) and redis.call('HGET', P .. 'array:' .. job.id, 'begun')) then
      check_due('expires ' .. job.id, job.expires_at, fault)
    end
  end

  local function check_walks(job, fault)
    if job.edge_cursor then
      WAITS.check_walk(job.id, fault)
    end
    if job.cascade and string.find(job.cascade, '%d$') then
      WAITS.check_walk('cascade:' .. job.id, fault)
    end
  end

  local function check_final(job, fault)
    local final, size = unpack(redis.call('HMGET', workflow_key(job.workflow), 'final', 'size'))
    if size and final ~= job.id then
      fault('malformed', 'its final job is ' .. (final or 'missing'), function()
        redis.call('HSET', workflow_key(job.workflow), 'final', job.id)
        final_may_start(job.workflow, true)
      end)
    elseif not size and job.status == 'blocked' then
      fault('workflow-gone', workflow_key(job.workflow))
      return true
    end
    return false
  end

  local function last_given()
    return tonumber(meta_now()[1] or '') or 0
  end

  local function note_given(fence)
    redis.call('HSET', KEYS[1], 'fence', fence)
    meta_now()[1] = fence
  end

  -- A running job without a fence gets one that nobody has: its worker has lost it, as the reaper will see.
  local function check_fence(job, fault)
    local fence = tonumber(job.fence or '')
    local valid = fence and string.find(job.fence, '^%d+$') and fence < HIGHEST_FENCE
    if valid and fence > last_given() then
      fault('fence-behind', meta_now()[1], function()
        note_given(job.fence)
      end)
    elseif not valid and (job.fence or job.status == 'running') then
      fault('malformed', 'its fence is ' .. (job.fence or 'missing'), function()
        redis.call('HDEL', job_key(job.id), 'fence')
        if job.status == 'running' then
          note_given(int(math.max(last_given(), NOW) + 1))
          redis.call('HSET', job_key(job.id), 'fence', meta_now()[1])
        end
      end)
    end
  end

  -- What every job has beside its hash.
  local function check_index(job, fault)
    if tonumber(is_in(P .. 'jobs', job.id) or '') ~= 0 then -- else it is not read in the order of ids
      fault('not-listed', P .. 'jobs', function()
        index(P .. 'jobs', job.id, 0)
      end)
    end
    check_fence(job, fault)
    if not is_in(P .. 'queues', job.queue) then
      fault('not-listed', P .. 'queues', function()
        redis.call('ZADD', P .. 'queues', '0', job.queue)
      end)
    end
    local zset = INDEXED[job.status] and queue_key(job.queue) .. ':' .. job.status
    for _, name in ipairs(zset and { zset, P .. 'jobs:' .. job.status } or {}) do
      if not is_in(name, job.id) then
        fault('not-listed', name, function()
          index(name, job.id, job.finished_at or job.created_at or NOW_TEXT)
        end)
      end
    end
  end

  local function check_staged(job, fault)
    local state = redis.call('HGET', P .. 'batch:' .. job.batch, 'state')
    if not state then
      fault('half-staged', job.batch)
    end
  end

  -- The job of an id, nil where there is none, or it is damaged, which is told.
  local function find(id, fault)
    local kind = redis.call('TYPE', job_key(id)).ok
    local job = kind == 'hash' and read(id)
    local is_placed = job and string.find(job.queue, '^[%w_.%-]+$') and string.find(job.priority, '^[1-9]$')
    if is_placed and STATUSES[job.status] then
      return job
    elseif job and STATUSES[job.status] then
      fault('damaged', 'its queue is ' .. job.queue .. ', its priority ' .. job.priority)
    elseif kind ~= 'none' then
      fault('damaged', kind == 'hash' and 'its status is ' .. (job and job.status or 'missing') or 'it is a ' .. kind)
    end
    return nil
  end

  -- A job, by its id.
  function INSPECT.job(id, fault)
    local job = find(id, fault)
    if not job then
      return
    elseif job.batch then
      return check_staged(job, fault)
    end
    check_index(job, fault)
    check_walks(job, fault)
    local gone = is_array(job) and HEADS.check(job, fault) or job.final and job.workflow and check_final(job, fault)
    if job.status == 'blocked' and not gone then
      WAITS.check(job, fault)
    elseif job.status == 'pending' then
      check_pending(job, fault)
    elseif job.status == 'running' then
      check_running(job, fault)
    elseif job.status == 'scheduled' then
      check_due(job.id, job.run_at or NOW, fault)
    end
    if not TERMINAL[job.status] then
      check_timers(job, fault)
    end
  end

  INSPECT.turn = HEADS.turn

  -- A pending job, by its id, whose list is long, and which was not seen there: it may have come to one of its ends since.
  function INSPECT.line(id, fault)
    local job = find(id, fault)
    if job and job.status == 'pending' and not job.batch then
      check_pending(job, fault, true)
    end
  end

  -- An edge of a job with many: `<child> <when> <parent>`, as the child names it; when `-`: it is among those not satisfied.
  function INSPECT.edge(item, fault)
    local child_id, when, parent = string.match(item, '^(%S+) (%S+) (.*)$')
    local child = find(child_id, fault)
    if not child or child.status ~= 'blocked' or child.batch or WAITS.has_started(child) then
      return
    end
    local state = redis.call('HGET', job_key(child_id) .. ':parents', parent)
    if state and when == '-' then
      WAITS.check_edge(child, parent, state, fault)
    elseif when ~= '-' then
      WAITS.check_named(child, parent, when, fault)
    end
  end
end
