-- waits: whether what a blocked job waits for is still to come (see inspection).

local WAITS = {
  searched = 0, -- entries of lists that were searched in this call
}

do
  local SHORT = 1000 -- a list of so many is searched; of a longer one, see INSPECT.line
  local ENDS = 10000 -- so much at both ends of a list whose rest was read
  local WHEN = { done = true, failed = true, finished = true }
  local SHORT_TEXT = 400 -- so long a list of its dependencies is gone over with it
  local FEW_EDGES = 10 -- so many edges of a job are looked at with it; of more, see INSPECT.edge

  function WAITS.stands_in(list, member, thorough)
    local length = redis.call('LLEN', list)
    WAITS.searched = WAITS.searched + (length <= SHORT and length or thorough and math.min(2 * ENDS, 2 * length) or 0)
    if length <= SHORT then
      return redis.call('LPOS', list, member)
    end
    return not thorough or redis.call('LPOS', list, member, 'MAXLEN', int(ENDS))
      or redis.call('LPOS', list, member, 'RANK', '-1', 'MAXLEN', int(ENDS))
  end

  -- Lists of `propagate` are worked off at once: an entry that is missing is not made up for by anybody.
  function WAITS.check_walk(entry, fault)
    if not WAITS.stands_in(P .. 'propagate', entry) then
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

  function WAITS.has_started(job)
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
    local waits = restore_edges(job) or redis.call('EXISTS', job_key(job.id) .. ':parents') == 1
    if job.broken > 0 then
      skip_broken(job)
    elseif not waits then
      local status = ready_state(job)
      redis.call('HSET', job_key(job.id), 'status', status)
      move(job, status)
    end
  end

  -- Whether a job depends on another, by its own words.
  local function is_named(child, parent_id)
    return string.find(' ' .. (child.depends_on or '') .. ' ', ' ' .. parent_id .. '[ :]')
  end

  -- An edge that is not satisfied: `state` is what the child's hash of parents says of it.
  function WAITS.check_edge(child, parent_id, state, fault)
    local parent, when = read(parent_id), string.match(state, '^!?(%a+)$')
    if not (WHEN[when] and string.find(parent_id, '^%w+$') and (parent or is_named(child, parent_id))) then
      fault('malformed', 'it waits for ' .. parent_id .. ' to be ' .. state, function()
        redis.call('HDEL', job_key(child.id) .. ':parents', parent_id)
        if string.sub(state, 1, 1) == '!' and child.broken > 0 then
          child.broken = child.broken - 1
          redis.call('HSET', job_key(child.id), 'broken', int(child.broken))
        end
        go_on(child)
      end)
      return
    elseif not parent then
      local gone = redis.call('EXISTS', job_key(parent_id)) == 0 -- else it is damaged, and may be mended
      fault('parent-gone', parent_id, gone and function()
        redis.call('HSET', job_key(child.id) .. ':parents', parent_id, '!' .. when)
        redis.call('HSET', job_key(child.id), 'broken', '1', 'caused_by', parent_id)
        child.broken = 1
        skip(child, { id = parent_id, status = 'in a way that is not known: its key is gone' })
      end)
      return
    end
    local edges, edge = job_key(parent_id) .. ':children', when .. ':' .. child.id
    local known = WAITS.stands_in(edges, edge)
    if not (known and parent.children) then
      fault('unknown-child', parent_id, function()
        if not known then
          redis.call('RPUSH', edges, edge)
        end
        visit_anew(parent)
      end)
    elseif not parent.edge_cursor and (edge_state(parent, when) or nil) ~= state then
      fault('stale-edge', parent_id .. ' is ' .. parent.status, function()
        visit_anew(parent)
      end)
    end
  end

  -- An edge that the child names: whether it waits for it, as long as it has to.
  function WAITS.check_named(child, parent_id, when, fault)
    local parent = parent_id and WHEN[when] and read(parent_id)
    local state = parent and not parent.edge_cursor and edge_state(parent, when)
    if state and redis.call('HEXISTS', job_key(child.id) .. ':parents', parent_id) == 0 then
      fault('edge-gone', parent_id, function()
        visit_anew(parent)
      end)
    end
  end

  local function check_edges(job, fault)
    local key = job_key(job.id) .. ':parents'
    if redis.call('HLEN', key) > FEW_EDGES then
      return
    end
    local edges, broken = redis.call('HGETALL', key), 0 -- bound: FEW_EDGES
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
        WAITS.check_edge(job, edges[i], edges[i + 1], fault)
      end
    end
    local named = job.depends_on or ''
    if job.status == 'blocked' and edges[1] and #named <= SHORT_TEXT then -- where all are gone, they are restored
      for edge in string.gmatch(named, '%S+') do
        local id, when = string.match(edge, '^(%w+):?(%a*)$')
        WAITS.check_named(job, id, when == '' and 'done' or when, fault)
      end
    end
  end

  function WAITS.check(job, fault)
    if WAITS.has_started(job) then
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
end
