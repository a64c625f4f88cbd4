-- edges: dependencies, level-triggered. A visit brings an edge to what the parent's present status requires.
-- uses: formats jobs ends
--
-- job:<child>:parents (HASH) has an entry per edge that is not satisfied: the parent's id → `done|failed|finished`
-- while the child waits. A `!` in front means that the parent ended otherwise: the edge is broken. A job with a broken
-- edge is skipped. If the parent is retried, the edge waits again and the job is re-armed.

local EDGES = {}

do

local STEP = 100 -- most edges before another job's turn
local searched = 0 -- entries of `parents` read to find a new cause, counted as edges

local function satisfies(when, status)
  return when == 'finished' or when == status
end

-- Return the value of an edge in the parents hash: false (satisfied), `when`, or `!when`.
function EDGES.state(parent, when)
  if not TERMINAL[parent.status] then
    return when
  end
  return not satisfies(when, parent.status) and '!' .. when
end

function EDGES.skip(job, parent)
  ENDS.end_job(job, 'skipped', {
    reason = 'upstream',
    caused_by = parent.id,
    error = 'skipped: it depends on ' .. parent.id .. ', which ended ' .. parent.status,
  })
end

local function rearm(job)
  redis.call('HSET', job_key(job.id), 'status', 'blocked', 'run', int(job.run + 1))
  redis.call('HDEL', job_key(job.id), 'finished_at', 'reason', 'error', 'caused_by')
  job.run = job.run + 1
  job.reason = nil
  move(job, 'blocked')
  ENDS.push_propagate(job)
end

local function release_blocked(job)
  local status = ready_state(job)
  redis.call('HSET', job_key(job.id), 'status', status)
  move(job, status)
end

-- Bring a job to the state that its edges require, after the edge from `parent` has changed.
local function settle(job, parent)
  if job.batch then -- its admission settles it
    redis.call('HSET', P .. 'batch:' .. job.batch, 'disturbed', '1')
    return
  end
  if job.status == 'blocked' and job.broken > 0 then
    EDGES.skip(job, parent)
  elseif job.broken == 0 then
    if job.status == 'skipped' then
      rearm(job)
    end
    if job.status == 'blocked' and redis.call('EXISTS', job_key(job.id) .. ':parents') == 0 then
      release_blocked(job)
    end
  end
end

-- Update `caused_by`: the parent of the first broken edge, until that edge is no longer broken.
local function blame(child, parent, change)
  local cause = child.broken > 0 and child.caused_by
  if change > 0 and child.broken == 1 then
    cause = parent.id
  elseif cause == parent.id then
    local edges = redis.call('HGETALL', job_key(child.id) .. ':parents') -- bound: the most dependencies of a job, see `searched`
    searched = searched + math.floor(#edges / 40)
    for i = 2, #edges, 2 do
      if string.sub(edges[i], 1, 1) == '!' then
        cause = edges[i - 1]
        break
      end
    end
  end
  if not cause then
    redis.call('HDEL', job_key(child.id), 'caused_by')
  else
    redis.call('HSET', job_key(child.id), 'caused_by', cause)
  end
end

-- Whether an array has started. It is also `blocked` while its tasks run, but then waits for no parent.
local function has_begun(child)
  return has_hook(child.hooks, 'array') and redis.call('HGET', P .. 'array:' .. child.id, 'started')
end

-- A job that was cancelled while it waited, or failed by its deadline, keeps its edges: a retry depends on them.
local GONE = { cancelled = true, failed = true }

local function visit(parent, when, child_id)
  local child = read(child_id)
  if not child or not (child.status == 'blocked' or child.status == 'skipped' or GONE[child.status]) then
    return
  end
  local key = job_key(child_id) .. ':parents'
  local was = redis.call('HGET', key, parent.id)
  local now = EDGES.state(parent, when)
  if was == now or (not was and (GONE[child.status] or has_begun(child))) then
    return
  end
  if now then
    redis.call('HSET', key, parent.id, now)
  else
    redis.call('HDEL', key, parent.id)
  end
  local function broken(state)
    return state and string.sub(state, 1, 1) == '!' and 1 or 0
  end
  local change = broken(now) - broken(was)
  if change ~= 0 then
    child.broken = child.broken + change
    redis.call('HSET', job_key(child_id), 'broken', int(child.broken))
    blame(child, parent, change)
  end
  settle(child, parent)
end

-- Visit the next edges of a job; returns how many, and whether they were the last.
local function visit_edges(id, budget)
  local parent, limit = read(id), math.min(budget, STEP)
  local cursor = parent and parent.edge_cursor
  if not cursor then
    return 1, true
  elseif ENDS.is_cascading(parent) then -- visiting the edges would skip jobs that the cascade has to cancel
    return (WALKS.cascade(id, limit)), false
  end
  local edges = redis.call('LRANGE', job_key(id) .. ':children', int(cursor), int(cursor + limit - 1))
  local visited = 0
  for _, edge in ipairs(edges) do
    if visited + searched > limit then
      break
    end
    visited = visited + 1
    local when, child_id = FORMATS.read_child(edge)
    if not pcall(visit, parent, when, child_id) then
      quarantine(child_id)
    end
  end
  local over = visited == #edges and visited < limit
  if over then
    redis.call('HDEL', job_key(id), 'edge_cursor')
  else
    redis.call('HSET', job_key(id), 'edge_cursor', int(cursor + visited))
  end
  local done = visited + searched
  searched = 0
  return done, over
end

-- Make one step of an entry of `propagate`: some kind of walk, or the edges of a job.
local function step(entry, budget)
  local kind, walked = string.match(entry, '^(%a+):(.+)$')
  if kind then
    return WALKS[kind](walked, budget)
  end
  return visit_edges(entry, budget)
end

-- Visit up to `budget` edges of ended or retried jobs, and continue other walks; returns whether another call has to
-- continue. After a step, an entry moves to the end of the list, so a long walk does not delay the others.
function EDGES.propagate(budget)
  while budget > 0 do -- bound: `budget` falls with each step
    local entry = redis.pcall('LINDEX', P .. 'propagate', '0')
    if type(entry) ~= 'string' then -- the list is empty or damaged
      return false
    end
    local ok, done, over = pcall(step, entry, budget)
    if not ok then
      quarantine(string.match(entry, '[^:]+$') or entry)
    end
    if over or not ok then
      redis.call('LPOP', P .. 'propagate')
    else
      redis.call('LMOVE', P .. 'propagate', P .. 'propagate', 'LEFT', 'RIGHT')
    end
    budget = budget - (ok and math.max(done, 1) or 1)
  end
  return redis.call('EXISTS', P .. 'propagate') == 1
end

end
