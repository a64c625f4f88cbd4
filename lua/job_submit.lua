-- job_submit: store submissions of jobs, each whole or not at all. Submissions that arrive together share a call.
-- uses: ends edges arrays submissions limits conflicts
--
-- ARGV[1]  ttl_ms        how long idempotency keys are kept, ms
-- ARGV[2..]  submissions  key (idempotency key with its scope, '' for none), fingerprint of the request body,
--                         workflow (id, '' for none), fields of a new workflow as JSON ('' to add jobs to an old
--                         one), size (number of jobs), and the jobs (see lib/submissions), parents first
--
-- Returns {"SUBMITTED", answer, …}, an answer per submission:
-- {"STORED", now_ms}, now_ms 0 if it was stored before; {"RETURNED", id}: this job holds the key of the only one;
-- {"HELD", holder, key} (see lib/conflicts); {"REPEATED", first_id, size, workflow}; {"MISMATCH"}; {"UNKNOWN", id, …};
-- {"FULL", excess, rate}; {"WORKFLOW_UNKNOWN"}; {"WORKFLOW_CLOSED", why}; {"VALUES", id, …}: it can be stored, but the
-- values of these arrays are missing; {"QUEUE_FULL", queue, limit, waiting, size, rate} (see lib/limits); or
-- {"BROKEN"}: a key of a parent is damaged

local ttl_ms = ARGV[1]
local limits = LIMITS.read()
local made_at = NOW_TEXT
local MOST_EDGES = 100

-- Write hashes and edges first. If a damaged key stops that, nothing else was written yet.
local function write_jobs(jobs, workflow)
  local children = {}
  for _, job in ipairs(jobs) do
    SUBMISSIONS.store_edges(job, children)
    -- Its children in this call see `skipped`; `enter_jobs` then writes that status.
    job.status = job.broken and 'skipped' or job.waits and 'blocked' or ready_state(job)
  end
  for _, job in ipairs(jobs) do
    job.workflow = workflow ~= '' and workflow
    SUBMISSIONS.store_job(job, job.broken and 'blocked' or job.status, made_at, workflow, children)
  end
  SUBMISSIONS.store_children(children, jobs)
end

local function erase(jobs)
  for _, job in ipairs(jobs) do
    redis.call('UNLINK', job_key(job.id), job_key(job.id) .. ':parents', job_key(job.id) .. ':children',
      P .. 'array:' .. job.id .. ':values')
  end
end

local function enter_jobs(jobs)
  local ids, queues = {}, {}
  for _, job in ipairs(jobs) do
    arrive(job, job.broken and 'blocked' or job.status)
    index(P .. 'jobs', job.id, 0)
    if job.broken then
      EDGES.skip(read(job.id), job.broken_by)
      job.status = 'skipped' -- again: `arrive` has overwritten it
    end
    ids[#ids + 1] = job.id
    queues[job.queue] = true
  end
  for queue in pairs(queues) do
    redis.call('ZADD', P .. 'queues', '0', queue)
  end
  return ids
end

local replaced_any = false

-- Return how much room a plan needs in each queue. A replaced job leaves its own room.
local function sizes_for(plan)
  local sizes = SUBMISSIONS.sizes_of(plan.kept)
  for _, replaced in ipairs(plan.replaced) do
    local other = read(replaced.id)
    if other then
      sizes[other.queue] = (sizes[other.queue] or 0) - 1 - tonumber(other.array_size or 0)
    end
  end
  return sizes
end

local function replace_holders(plan)
  for _, replaced in ipairs(plan.replaced) do
    local other = read(replaced.id)
    if not TERMINAL[other.status] then -- a job of this call may have been stored as skipped
      ENDS.cancel(other, { error = 'replaced by job ' .. replaced.by })
      replaced_any = true
    end
  end
end

local function is_replaceable(other)
  return not other.status or not (ARRAYS.is_array(other) and ARRAYS.row(other.id).started)
end

-- Return whether jobs with these ids were stored before: then the reply to this call was lost. One is enough, as others
-- may have been deleted meanwhile.
local function is_repeat(jobs)
  local keys, unique = {}, false
  for i, job in ipairs(jobs) do
    keys[i], unique = job_key(job.id), unique or job.unique
  end
  if redis.call('EXISTS', unpack(keys)) > 0 then
    return true
  end
  return jobs[2] and unique and CONFLICTS.was_returned(jobs[1].id)
end

-- Return the refusal of these jobs, nil if they can be stored.
local function refusal(workflow, new, jobs, sizes)
  local refused = workflow ~= '' and new == '' and SUBMISSIONS.refuses_jobs(workflow)
    or limits.full and LIMITS.no_memory(limits)
    or LIMITS.too_many(limits, sizes)
  if refused then
    return refused
  end
  local unknown = SUBMISSIONS.resolve_parents(jobs)
  if #unknown > 0 then
    return { 'UNKNOWN', unpack(unknown) }
  end
  local missing = SUBMISSIONS.without_values(jobs)
  return #missing > 0 and { 'VALUES', unpack(missing) } or nil
end

-- Store the jobs that a plan keeps; returns a refusal, nil if they are stored.
local function store(workflow, new, size, plan)
  local jobs, sizes = plan.kept, sizes_for(plan)
  local refused = refusal(workflow, new, jobs, sizes)
  if refused then
    return refused
  elseif not pcall(write_jobs, jobs, workflow) then
    erase(jobs)
    return { 'BROKEN' }
  end
  LIMITS.occupy(limits, sizes)
  local ids = enter_jobs(jobs)
  if workflow ~= '' then
    SUBMISSIONS.store_workflow(workflow, new, made_at, size)
    redis.call('RPUSH', P .. 'workflow:' .. workflow .. ':jobs', unpack(ids))
  end
  replace_holders(plan)
  CONFLICTS.take_keys(plan)
end

local function submit(key, fingerprint, workflow, new, size, jobs)
  local before = SUBMISSIONS.earlier(key, fingerprint) or is_repeat(jobs) and { 'STORED', 0 }
  if before then
    return before
  end
  local first, single = jobs[1].id, not jobs[2]
  local plan, held = CONFLICTS.meet_holders(jobs, workflow, '', is_replaceable)
  if not plan then
    return held
  elseif single and plan.returned[first] then
    SUBMISSIONS.remember(key, fingerprint, plan.returned[first], '1', '', true)
    return { 'RETURNED', plan.returned[first] }
  end
  local any = #plan.kept > 0
  local refused = any and store(workflow, new, size, plan)
  if refused then
    return refused
  end
  CONFLICTS.note_returned(plan, first, key)
  SUBMISSIONS.remember(key, fingerprint, first, size, workflow)
  return { 'STORED', any and NOW or 0 }
end

local answers = { 'SUBMITTED' }
local at = 2
while ARGV[at] do -- bound: the call's own arguments
  local jobs, behind = SUBMISSIONS.parse_jobs(at + 5, tonumber(ARGV[at + 4]), NOW)
  answers[#answers + 1] = submit(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], jobs)
  at = behind
end
flush()
if replaced_any then
  EDGES.propagate(MOST_EDGES)
  flush()
end
SUBMISSIONS.flush_remembered(ttl_ms)
return answers
