-- inspection: whether a job is where its hash says, and waits for what is still to come. INSPECT.<what>(item, fault) looks at
-- one item; it tells each fault by `fault(code, detail, mend)`, where `mend` puts it right (nil: nothing can safely).
-- The codes are explained in workron/doctor/faults.py.

local INSPECT = {}
local STATUSES = { scheduled = true, blocked = true, pending = true, running = true }
for status in pairs(TERMINAL) do
  STATUSES[status] = true
end

do
  local SHORT = 1000 -- a list of so many is searched; of a longer one, see INSPECT.line
  local ENDS = 10000 -- so much at both ends of a list whose rest was read
  local FEW_EDGES = 50 -- so many edges of a job are looked at with it; of more, see INSPECT.edge

  local function stands_in(list, member, thorough)
    if redis.call('LLEN', list) <= SHORT then
      return redis.call('LPOS', list, member)
    end
    return not thorough or redis.call('LPOS', list, member, 'MAXLEN', int(ENDS))
      or redis.call('LPOS', list, member, 'RANK', '-1', 'MAXLEN', int(ENDS))
  end

  local function is_in(zset, member)
    return redis.call('ZSCORE', zset, member)
  end

  -- Lists of `propagate` are worked off at once: an entry that is missing is not made up for by anybody.
  local function check_walk(entry, fault)
    if not stands_in(P .. 'propagate', entry) then
      fault('stuck-walk', entry, function()
        redis.call('RPUSH', P .. 'propagate', entry)
      end)
    end
  end

  local function visit_anew(parent)
    redis.call('HSET', job_key(parent.id), 'children', '1')
    parent.children = '1'
    push_propagate(parent)
  end

  -- An edge that is not satisfied: `state` is what the child's hash of parents says of it.
  local function check_edge(child, parent_id, state, fault)
    local parent, when = read(parent_id), string.match(state, '^!?(%a+)$')
    if not parent then
      fault('parent-gone', parent_id, function()
        redis.call('HSET', job_key(child.id) .. ':parents', parent_id, '!' .. when)
        redis.call('HSET', job_key(child.id), 'broken', '1', 'caused_by', parent_id)
        child.broken = 1
        skip(child, { id = parent_id, status = 'in a way that is not known: its key is gone' })
      end)
      return
    end
    local edges, edge = job_key(parent_id) .. ':children', when .. ':' .. child.id
    if not stands_in(edges, edge) then
      fault('unknown-child', parent_id, function()
        redis.call('RPUSH', edges, edge)
        visit_anew(parent)
      end)
    elseif not parent.edge_cursor and (edge_state(parent, when) or nil) ~= state then
      fault('stale-edge', parent_id .. ' is ' .. parent.status, function()
        visit_anew(parent)
      end)
    end
  end

  local function check_edges(job, fault)
    local key = job_key(job.id) .. ':parents'
    if redis.call('HLEN', key) > FEW_EDGES then
      return
    end
    local edges, broken = redis.call('HGETALL', key), 0
    for i = 2, #edges, 2 do
      broken = broken + (string.sub(edges[i], 1, 1) == '!' and 1 or 0)
    end
    if broken ~= job.broken then
      fault('miscounted-edges', int(job.broken) .. ', not ' .. int(broken), function()
        redis.call('HSET', job_key(job.id), 'broken', int(broken))
        job.broken = broken
      end)
    end
    for i = 1, #edges, 2 do
      if job.status == 'blocked' then -- else it was mended
        check_edge(job, edges[i], edges[i + 1], fault)
      end
    end
  end

  local function has_started(job)
    return is_array(job) and redis.call('HGET', P .. 'array:' .. job.id, 'started')
  end

  local function skip_broken(job)
    skip(job, read(job.caused_by) or { id = job.caused_by, status = 'otherwise' })
  end

  -- Have a job whose edges are gone wait again for those of its dependencies that have not ended as it wants; returns
  -- whether there are any.
  local function restore_edges(job)
    local key, waits, broken = job_key(job.id), false, 0
    for edge in string.gmatch(job.depends_on or '', '%S+') do
      local id, when = string.match(edge, '^(%w+):?(%a*)$') -- one that ends with `=` is no edge: its tasks follow others
      local parent = id and read(id)
      local state = parent and edge_state(parent, when == '' and 'done' or when)
      if state then
        redis.call('HSET', key .. ':parents', id, state)
        waits = true
      end
      if state and string.sub(state, 1, 1) == '!' then
        broken = broken + 1
        job.caused_by = id
      end
    end
    if broken > 0 then
      redis.call('HSET', key, 'broken', int(broken), 'caused_by', job.caused_by)
      job.broken = broken
    end
    return waits
  end

  local function go_on(job)
    local waits = restore_edges(job)
    if job.broken > 0 then
      skip_broken(job)
    elseif not waits then
      local status = ready_state(job)
      redis.call('HSET', job_key(job.id), 'status', status)
      move(job, status)
    end
  end

  local function check_blocked(job, fault)
    if has_started(job) then
      return
    end
    check_edges(job, fault)
    local waits = redis.call('EXISTS', job_key(job.id) .. ':parents') == 1
    if job.status ~= 'blocked' then
      return -- it was mended
    elseif job.broken > 0 then
      fault('unsettled', job.caused_by, function()
        skip_broken(job)
      end)
    elseif not waits and not job.final then
      fault('unsettled', 'it waits for nobody', function()
        go_on(job)
      end)
    end
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
    if place == 0 then
      fault('not-in-line', name, function()
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
    if not till or tonumber(till) > NOW + 1000 and redis.call('EXISTS', job_key(job.id) .. ':heartbeat') == 0 then
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
      check_walk(job.id, fault)
    end
    if job.cascade and string.find(job.cascade, '%d$') then
      check_walk('cascade:' .. job.id, fault)
    end
  end

  local function check_array(head, fault)
    local row = array_row(head.id)
    local over = row.ended >= row.size and row.turns == 0
    local to_make = row.turns + (row.follows and 0 or row.size - row.made)
    local idle = row.started and not over and row.waiting + row.running == 0 and to_make > 0
    if row.size == 0 then
      fault('array-gone', P .. 'array:' .. head.id)
    elseif row.walk and not is_in(P .. 'arrays', head.id) then
      fault('stuck-array', row.walk, function()
        work_on_array(head.id)
      end)
    elseif not row.walk and (over ~= (TERMINAL[head.status] or false) or idle and not is_in(P .. 'arrays', head.id)) then
      fault('stuck-array', int(row.ended) .. ' of ' .. int(row.size) .. ' tasks have ended', function()
        touched[head.id] = true
      end)
    end
  end

  local HIGHEST_FENCE = 2 ^ 52 -- behind that, numbers in Lua do not count one by one

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
    if not is_in(P .. 'jobs', job.id) then
      fault('not-listed', P .. 'jobs', function()
        index(P .. 'jobs', job.id, 0)
      end)
    end
    check_fence(job, fault)
    if redis.call('SISMEMBER', P .. 'queues', job.queue) == 0 then
      fault('not-listed', P .. 'queues', function()
        redis.call('SADD', P .. 'queues', job.queue)
      end)
    end
    local zset = INDEXED[job.status] and queue_key(job.queue) .. ':' .. job.status
    if zset and not is_in(zset, job.id) then
      fault('not-listed', zset, function()
        index(zset, job.id, job.finished_at or job.created_at or NOW_TEXT)
      end)
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
    if job and STATUSES[job.status] then
      return job
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
    if is_array(job) then
      check_array(job, fault)
    end
    if job.status == 'blocked' then
      check_blocked(job, fault)
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

  -- A pending job, by its id, whose list is long, and which was not seen there: it may have come to one of its ends since.
  function INSPECT.line(id, fault)
    local job = find(id, fault)
    if job and job.status == 'pending' and not job.batch then
      check_pending(job, fault, true)
    end
  end

  -- An edge of a job with many: `<parent> <state> <child>`.
  function INSPECT.edge(item, fault)
    local parent, state, child_id = string.match(item, '^(%S+) (%S+) (%S+)$')
    local child = find(child_id, fault)
    if child and child.status == 'blocked' and not child.batch
      and redis.call('HGET', job_key(child_id) .. ':parents', parent) == state then
      check_edge(child, parent, state, fault)
    end
  end
end
