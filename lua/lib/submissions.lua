-- submissions: read jobs from a flat argument list, check them all, then store them.
-- uses: formats edges schedules
--
-- A job is: id, run_at (ms, 0: none), delay (ms, 0: none), number of fields, field,
-- value, …, number of edges, parent, when, …

local SUBMISSIONS = {
  NONE = {}, -- the edges of a job that has none, as most jobs
}

do

local FROM_FIELDS = { queue = true, priority = true, unique = true, hooks = true, array_size = true, array_parallel = true,
  array_first = true, array_follows = true, array_follows_when = true, array_values = true, final = true }

local function parse_edges(at, count)
  if count == 0 then
    return SUBMISSIONS.NONE
  end
  local edges = {}
  for n = 1, count do
    edges[n] = { parent = ARGV[at + 2 * n - 2], when = ARGV[at + 2 * n - 1] }
  end
  return edges
end

-- Parse `count` jobs from ARGV[at] on, created at `made_at` (ms). Returns them, and the position of the next argument.
function SUBMISSIONS.parse_jobs(at, count, made_at)
  local jobs = {}
  for n = 1, count do
    local run_at, delay = ARGV[at + 1], ARGV[at + 2]
    local first, last = at + 4, at + 3 + 2 * tonumber(ARGV[at + 3])
    local edges = tonumber(ARGV[last + 1])
    local job = {
      id = ARGV[at],
      run_at = false,
      queue = 'default',
      priority = '5',
      first = first,
      last = last,
      edges = parse_edges(last + 2, edges),
    }
    if delay ~= '0' then
      job.run_at, job.wait_ms = made_at + tonumber(delay), delay
    elseif run_at ~= '0' then
      job.run_at = tonumber(run_at)
    end
    for i = first, last, 2 do
      local name = ARGV[i]
      if FROM_FIELDS[name] then
        job[name] = ARGV[i + 1]
      end
    end
    at = last + 2 + 2 * edges
    jobs[n] = job
  end
  return jobs, at
end

-- Return how many of the jobs are in each queue. An array counts as one job plus its tasks.
function SUBMISSIONS.sizes_of(jobs)
  local sizes = {}
  for _, job in ipairs(jobs) do
    sizes[job.queue] = (sizes[job.queue] or 0) + 1 + tonumber(job.array_size or 0)
  end
  return sizes
end

-- Find each edge's parent among `jobs` or in the store; returns the unknown ids.
function SUBMISSIONS.resolve_parents(jobs, batch)
  local known, unknown, here = {}, {}, {}
  for _, job in ipairs(jobs) do
    here[job.id] = job
  end
  for _, job in ipairs(jobs) do
    for _, edge in ipairs(job.edges) do
      local id = edge.parent
      if not here[id] and known[id] == nil then
        local parent = read(id)
        known[id] = parent and (parent.batch == batch or visible(parent)) and parent or false
        if not known[id] then
          unknown[#unknown + 1] = id
        end
      end
      edge.job = here[id] or known[id]
    end
    local followed = job.array_follows
    if followed and not here[followed] and not read(followed) then -- it was not stored: another job holds its key
      unknown[#unknown + 1] = followed
    end
  end
  return unknown
end

-- Return the arrays among these jobs whose values are incomplete. The client sends values before the job, but only once
-- the job is known to be acceptable: {"VALUES", id, …} asks for them.
function SUBMISSIONS.without_values(jobs)
  local missing = {}
  for _, job in ipairs(jobs) do
    if job.array_values and redis.call('LLEN', P .. 'array:' .. job.id .. ':values') ~= tonumber(job.array_size) then
      missing[#missing + 1] = job.id
    end
  end
  return missing
end

-- Write the edges of a job whose parents are resolved. The child stores its unsatisfied edges. Entries for the
-- parents' lists are collected in `children`.
function SUBMISSIONS.store_edges(job, children)
  local open = {}
  for _, edge in ipairs(job.edges) do
    local state = EDGES.state(edge.job, edge.when)
    if state then
      open[#open + 1] = edge.parent
      open[#open + 1] = state
    end
    if state and string.sub(state, 1, 1) == '!' then
      job.broken = (job.broken or 0) + 1
      job.broken_by = edge.job
    end
    append(children, edge.parent, FORMATS.child(edge.when, job.id))
  end
  if #open > 0 then
    redis.call('HSET', job_key(job.id) .. ':parents', unpack(open))
    job.waits = true
  end
end

-- Write a job's hash with the given status.
function SUBMISSIONS.store_job(job, status, made_at, workflow, children, batch)
  local fields = { 'status', status, 'created_at', made_at, unpack(ARGV, job.first, job.last) }
  if batch then
    fields[#fields + 1], fields[#fields + 2] = 'batch', batch
  end
  if workflow ~= '' then
    fields[#fields + 1], fields[#fields + 2] = 'workflow', workflow
  end
  if job.run_at then
    fields[#fields + 1], fields[#fields + 2] = 'run_at', int(job.run_at)
  end
  if job.wait_ms then
    fields[#fields + 1], fields[#fields + 2] = 'wait_ms', job.wait_ms
  end
  if children[job.id] then
    fields[#fields + 1], fields[#fields + 2] = 'children', '1'
    job.children = '1'
  end
  if job.broken then
    fields[#fields + 1], fields[#fields + 2] = 'broken', int(job.broken)
    fields[#fields + 1], fields[#fields + 2] = 'caused_by', job.broken_by.id
  end
  redis.call('HSET', job_key(job.id), unpack(fields))
  if job.array_values then
    redis.call('PERSIST', P .. 'array:' .. job.id .. ':values')
  end
end

-- Write the lists of children, after the jobs of this call, whose hashes have `children` set already.
function SUBMISSIONS.store_children(children, jobs)
  for parent, edges in pairs(children) do
    redis.call('RPUSH', job_key(parent) .. ':children', unpack(edges))
  end
  for _, job in ipairs(jobs) do
    if job.children then
      children[job.id] = nil
    end
  end
  for parent in pairs(children) do
    redis.call('HSET', job_key(parent), 'children', '1')
  end
end

-- Return why a workflow accepts no more jobs; nil if it does.
function SUBMISSIONS.refuses_jobs(workflow)
  local key = P .. 'workflow:' .. workflow
  local row = redis.call('HMGET', key, 'size', 'stopped', 'final', 'done', 'failed', 'cancelled', 'skipped')
  if not row[1] then
    return { 'WORKFLOW_UNKNOWN' }
  end
  local left = tonumber(row[1])
  for i = 4, 7 do
    left = left - tonumber(row[i] or 0)
  end
  if row[2] then
    return { 'WORKFLOW_CLOSED', 'stopped' }
  elseif left <= 0 then
    return { 'WORKFLOW_CLOSED', 'finished' }
  end
  local final = row[3] and redis.call('HGET', job_key(row[3]), 'status')
  return final and final ~= 'blocked' and final ~= 'cancelled' and { 'WORKFLOW_CLOSED', 'final' } or nil
end

-- Store a new workflow, or count the jobs added to it. `new`: fields of its hash as JSON, '' if jobs are added.
function SUBMISSIONS.store_workflow(workflow, new, made_at, size)
  local key = P .. 'workflow:' .. workflow
  if new == '' then
    redis.call('HINCRBY', key, 'size', size)
    return
  end
  redis.call('HSET', key, 'created_at', made_at, 'size', size)
  for field, value in pairs(cjson.decode(new)) do
    redis.call('HSET', key, field, value)
  end
end

local remembered = {} -- key → its entry, for submissions of this call

-- Return the earlier use of an Idempotency-Key: nil, or {'REPEATED', first id, count, workflow}, or {'MISMATCH'}.
function SUBMISSIONS.earlier(key, fingerprint)
  if key == '' then
    return nil
  end
  local schedule = SCHEDULES.name_in(key)
  if schedule then
    return SCHEDULES.judge(schedule, fingerprint)
  end
  local value = remembered[key] or redis.call('GET', P .. 'idempotency:' .. key)
  if not value then
    return nil
  end
  local print, first, size, workflow = FORMATS.read_entry(value)
  if print ~= fingerprint then
    return { 'MISMATCH' }
  end
  return { 'REPEATED', first, size, workflow }
end

function SUBMISSIONS.remember(key, fingerprint, first, size, workflow, returned)
  local schedule = key ~= '' and SCHEDULES.name_in(key)
  if schedule then
    SCHEDULES.record(schedule, fingerprint, first, size, workflow, returned)
  elseif key ~= '' then
    remembered[key] = FORMATS.entry(fingerprint, first, size, workflow)
  end
end

-- Write the entries of Idempotency-Keys last: the jobs that an entry names must exist.
function SUBMISSIONS.flush_remembered(ttl_ms)
  for key, entry in pairs(remembered) do
    redis.call('SET', P .. 'idempotency:' .. key, entry, 'PX', ttl_ms)
  end
end

end
