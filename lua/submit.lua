-- submit: store submissions of jobs, each whole or not at all. Those that come together travel together.
-- uses: core timers slots concurrency ends edges arrays gates expiry claims submissions limits
--
-- ARGV[1]  ttl_ms        how long idempotency keys are remembered, ms
-- ARGV[2..]  submissions  key (idempotency key with its scope, '' for none), fingerprint of the request body,
--                         workflow (id of the workflow that the jobs make, '' for none), its name (may be ''),
--                         size (number of jobs), and the jobs (see lib/submissions), parents before their children
--
-- Returns {"SUBMITTED", answer, …}, an answer per submission:
-- {"STORED", now_ms}, now_ms 0 if it was stored before; {"REPEATED", first_id, size, workflow}, {"MISMATCH"}, {"UNKNOWN", id, …}, {"FULL", excess, rate},
-- {"QUEUE_FULL", queue, limit, waiting, size, rate} (see lib/limits) or {"BROKEN"} where a key of a parent is damaged

local ttl_ms = ARGV[1]
local limits = read_limits()
local made_at = NOW_TEXT

-- Write hashes and edges first: where a damaged key stops that, nothing else was written yet.
local function write_jobs(jobs, workflow)
  local children = {}
  for _, job in ipairs(jobs) do
    store_edges(job, children)
    -- `skipped` is what its children in this call see; `enter_jobs` makes it true.
    job.status = job.broken and 'skipped' or job.waits and 'blocked' or ready_state(job)
  end
  for _, job in ipairs(jobs) do
    job.workflow = workflow ~= '' and workflow
    store_job(job, job.broken and 'blocked' or job.status, made_at, workflow, children)
  end
  store_children(children, jobs)
end

local function erase(jobs)
  for _, job in ipairs(jobs) do
    redis.call('DEL', job_key(job.id), job_key(job.id) .. ':parents', job_key(job.id) .. ':children')
  end
end

local fresh = {} -- queue → jobs of this call that wait for nothing

local function enter_jobs(jobs)
  local ids, queues = {}, {}
  for _, job in ipairs(jobs) do
    if job.status == 'pending' and not job.holds then
      append(fresh, job.queue, job)
    else
      arrive(job, job.broken and 'blocked' or job.status)
    end
    index(P .. 'jobs', job.id, 0)
    if job.broken then
      skip(read(job.id), job.broken_by)
    end
    ids[#ids + 1] = job.id
    queues[job.queue] = true
  end
  for queue in pairs(queues) do
    redis.call('SADD', P .. 'queues', queue)
  end
  return ids
end

local function submit(key, fingerprint, workflow, name, size, jobs)
  local before = earlier(key, fingerprint)
  if before then
    return before
  end
  if redis.call('EXISTS', job_key(jobs[1].id)) == 1 then
    return { 'STORED', 0 } -- the reply to this very call was lost before
  end
  if limits.full then
    return no_memory(limits)
  end
  local sizes = sizes_of(jobs)
  local refused = too_many(limits, sizes)
  if refused then
    return refused
  end
  local unknown = resolve_parents(jobs)
  if #unknown > 0 then
    return { 'UNKNOWN', unpack(unknown) }
  end
  if not pcall(write_jobs, jobs, workflow) then
    erase(jobs)
    return { 'BROKEN' }
  end
  occupy(limits, sizes)
  local ids = enter_jobs(jobs)
  if workflow ~= '' then
    redis.call('HSET', P .. 'workflow:' .. workflow, 'created_at', made_at, 'size', size, 'name', name)
    redis.call('RPUSH', P .. 'workflow:' .. workflow .. ':jobs', unpack(ids))
  end
  remember(key, fingerprint, ids[1], size, workflow)
  return { 'STORED', NOW }
end

local answers = { 'SUBMITTED' }
local at = 2
while ARGV[at] do
  local jobs, behind = parse_jobs(at + 5, tonumber(ARGV[at + 4]), NOW)
  answers[#answers + 1] = submit(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], jobs)
  at = behind
end
for queue, jobs in pairs(fresh) do
  hand_out(queue, jobs, queue_row(queue).ready)
end
flush()
flush_remembered(ttl_ms)
return answers
