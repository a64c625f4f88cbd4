-- submission_stage: store one chunk of a large submission, not visible yet.
-- uses: formats submissions limits conflicts
--
-- Every call checks the state of the batch. Further edges of a job from an earlier chunk arrive as a job without
-- fields.
--
-- ARGV[1]  batch        id of the submission
-- ARGV[2]  chunk        number of this chunk, from 0
-- ARGV[3]  workflow     id of the workflow that the jobs make, '' for none
-- ARGV[4]  key          idempotency key with its scope, '' for none
-- ARGV[5]  fingerprint  of the request body
-- ARGV[6]  size         number of jobs in this chunk
-- ARGV[7]  reserve      queue, number of jobs, queue, … separated by spaces: the room that the whole submission needs,
--                       '' if an earlier chunk reserved it
-- ARGV[8..]  jobs       see lib/submissions; parents before their children
--
-- Chunks are stored in order; EARLY: the chunk before this one is missing.
--
-- Returns {"STAGED"}, {"VALUES", id, …} (see lib/submissions), {"EARLY"}, {"STORED", 0}, {"CLOSED"},
-- {"REPEATED", first_id, size, workflow}, {"MISMATCH"}, {"UNKNOWN", id, …}, {"HELD", holder, key} (see lib/conflicts),
-- {"FULL", excess, rate} or {"QUEUE_FULL", queue, limit, waiting, size, rate} (see lib/limits)

local batch, chunk, workflow, key, fingerprint = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local size, reserve = tonumber(ARGV[6]), ARGV[7]
local batch_key = P .. 'batch:' .. batch

local before = SUBMISSIONS.earlier(key, fingerprint)
if before then
  return before
end
local state, made_at, staged, last = unpack(redis.call('HMGET', batch_key, 'state', 'created_at', 'chunk:' .. chunk,
  'chunk:' .. tonumber(chunk) - 1))
if state == 'open' or not state and (redis.call('EXISTS', job_key(ARGV[8])) == 1 or CONFLICTS.was_returned(batch)) then
  return { 'STORED', 0 } -- this submission was stored before
end
if state and state ~= 'staging' then
  return { 'CLOSED' }
end
if staged then
  return { 'STAGED' } -- a repeat: the first reply was lost
end
if chunk ~= '0' and not last then
  return { 'EARLY' }
end
local limits = LIMITS.read()
if limits.full then
  return LIMITS.no_memory(limits)
end
local sizes = {}
for _, room in ipairs(FORMATS.read_rooms(reserve)) do
  sizes[room.queue] = room.number
end
local refused = LIMITS.too_many(limits, sizes)
if refused then
  return refused
end
made_at = made_at or NOW_TEXT -- all jobs of the submission have the same time
local parsed = SUBMISSIONS.parse_jobs(8, size, tonumber(made_at))

-- A chunk replaces no job: it is not certain yet that the submission will be opened.
local function never()
  return false
end

local plan, held = CONFLICTS.meet_holders(parsed, workflow, batch, never)
if not plan then
  return held
end

-- Return the jobs to store. A job's further edges are left out if the job was not stored, for a conflict of its unique
-- key.
local function stored(all)
  local some = {}
  for _, job in ipairs(all) do
    if job.last > job.first or redis.call('EXISTS', job_key(job.id)) == 1 then
      some[#some + 1] = job
    end
  end
  return some
end

local jobs = stored(plan.kept)
local unknown = SUBMISSIONS.resolve_parents(jobs, batch)
if #unknown > 0 then
  table.insert(unknown, 1, 'UNKNOWN')
  return unknown
end
local missing = SUBMISSIONS.without_values(jobs)
if #missing > 0 then
  return { 'VALUES', unpack(missing) }
end

-- Store a job, and note the status that its admission need not look up: pending, or blocked as long as no parent's end
-- changes that.
local function stage(job, children)
  local status = job.edges ~= SUBMISSIONS.NONE and 'blocked' or ready_state(job)
  SUBMISSIONS.store_job(job, status, made_at, workflow, children, batch)
  local surely = job.edges == SUBMISSIONS.NONE and status == 'pending' or job.waits and not job.broken
  job.surely = surely and not job.hooks and status or ''
end

local function stage_edges(job)
  if job.broken then
    redis.call('HINCRBY', job_key(job.id), 'broken', int(job.broken))
    redis.call('HSET', job_key(job.id), 'caused_by', job.broken_by.id)
    redis.call('HSET', batch_key, 'disturbed', '1')
  end
end

-- Return the chunk's part of the work list, for at least one job: a line per run of jobs that are alike.
local function lines_of(jobs)
  local lines, ids, last = {}, {}, nil
  local function close()
    lines[#lines + 1] = FORMATS.alike(ids, last.surely, last.priority, last.queue)
  end
  for _, job in ipairs(jobs) do
    if last and not (job.surely == last.surely and job.queue == last.queue and job.priority == last.priority) then
      close()
      ids = {}
    end
    ids[#ids + 1] = job.id
    last = job
  end
  close()
  return table.concat(lines, '\n')
end

-- Free the room that was reserved for jobs which are not stored.
local function return_room(all)
  local freed = {}
  for _, job in ipairs(all) do
    if plan.returned[job.id] then
      freed[job.queue] = (freed[job.queue] or 0) + 1 + tonumber(job.array_size or 0)
    end
  end
  for queue, number in pairs(freed) do
    redis.call('RPUSH', batch_key .. ':reserved', FORMATS.room(queue, '-' .. int(number)))
    count(queue_key(queue), 'reserved', -number)
  end
  flush()
end

local children, whole = {}, {}
for _, job in ipairs(jobs) do
  SUBMISSIONS.store_edges(job, children)
end
for _, job in ipairs(jobs) do
  if job.last > job.first then
    stage(job, children)
    whole[#whole + 1] = job
  else
    stage_edges(job)
  end
end
CONFLICTS.take_keys(plan)
SUBMISSIONS.store_children(children, jobs)
redis.call('HSET', batch_key, 'state', 'staging', 'created_at', made_at, 'chunk:' .. chunk, '1')
redis.call('ZADD', P .. 'batches', NOW_TEXT, batch)
if #whole > 0 then
  redis.call('RPUSH', batch_key .. ':ids', lines_of(whole))
end
if reserve ~= '' then
  redis.call('RPUSH', batch_key .. ':reserved', reserve)
  for queue, number in pairs(sizes) do
    count(queue_key(queue), 'reserved', number)
  end
  flush()
end
if CONFLICTS.note_returned(plan, batch, key) then
  return_room(parsed)
end
return { 'STAGED' }
