-- submit: store one submission of jobs, whole or not at all.
-- uses: core ends edges submissions
--
-- ARGV[1]  key          idempotency key with its scope, '' for none
-- ARGV[2]  fingerprint  of the request body
-- ARGV[3]  ttl_ms       how long the key is remembered, ms
-- ARGV[4]  workflow     id of the workflow that the jobs make, '' for none
-- ARGV[5]  name         the workflow's name, may be ''
-- ARGV[6]  size         number of jobs
-- ARGV[7..]  jobs       see lib/submissions; parents before their children
--
-- Returns {"STORED"}, {"REPEATED", first_id, size, workflow}, {"MISMATCH"}, {"UNKNOWN", id, …} or {"FULL"}

local key, fingerprint, ttl_ms, workflow, name, size = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local before = earlier(key, fingerprint)
if before then
  return before
end
local jobs = parse_jobs(7)
if redis.call('EXISTS', job_key(jobs[1].id)) == 1 then
  return { 'STORED' } -- the reply to this very call was lost before
end
if redis.call('HGET', KEYS[1], 'full') then
  return { 'FULL' }
end
local unknown = resolve_parents(jobs)
if #unknown > 0 then
  table.insert(unknown, 1, 'UNKNOWN')
  return unknown
end

local children, ids, queues = {}, {}, {}
for _, job in ipairs(jobs) do
  store_edges(job, children)
  local status = job.waits and 'blocked' or ready_state(job)
  store_job(job, status, workflow)
  enter(job, status)
  index(P .. 'jobs', job.id, 0)
  if job.broken then
    skip(read(job.id), job.broken_by)
    job.status = 'skipped' -- what its children in this call see
  end
  ids[#ids + 1] = job.id
  queues[job.queue] = true
end
store_children(children)
for queue in pairs(queues) do
  redis.call('SADD', P .. 'queues', queue)
end
if workflow ~= '' then
  redis.call('HSET', P .. 'workflow:' .. workflow, 'created_at', int(NOW), 'size', size, 'name', name)
  redis.call('RPUSH', P .. 'workflow:' .. workflow .. ':jobs', unpack(ids))
end
remember_submission(key, fingerprint, ids[1], size, workflow, ttl_ms)
flush()
return { 'STORED' }
