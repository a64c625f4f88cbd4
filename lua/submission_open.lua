-- submission_open: make a large submission visible in one step, if all chunks are stored. submission_admit admits it.
-- uses: submissions conflicts
--
-- ARGV[1]  batch        id of the submission
-- ARGV[2]  chunks       number of staged chunks
-- ARGV[3]  workflow     id of the workflow of the jobs, '' for none
-- ARGV[4]  new          fields of a new workflow as JSON, '' to add jobs to an old one
-- ARGV[5]  key          idempotency key with its scope, '' for none
-- ARGV[6]  fingerprint  of the request body
-- ARGV[7]  ttl_ms       how long the key is kept, ms
-- ARGV[8]  first        id of the first job
-- ARGV[9]  size         number of jobs
--
-- Returns {"OPEN", created_at} (ms; 0 if it was admitted before), {"INCOMPLETE"}, {"CLOSED"},
-- {"REPEATED", first_id, size, workflow}, {"MISMATCH"}, {"WORKFLOW_UNKNOWN"} or {"WORKFLOW_CLOSED", why}

local batch, chunks, workflow, new = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local key, fingerprint, ttl_ms, first, size = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local batch_key = P .. 'batch:' .. batch

local state, made_at, disturbed = unpack(redis.call('HMGET', batch_key, 'state', 'created_at', 'disturbed'))
if state == 'open' then
  return { 'OPEN', tonumber(made_at) }
end
if state ~= 'staging' then
  -- It was admitted and the reply to this call was lost, or the reaper aborted it.
  if state ~= 'aborted' and (redis.call('EXISTS', job_key(first)) == 1 or CONFLICTS.was_returned(first)) then
    return { 'OPEN', 0 }
  end
  return { 'CLOSED' }
end
local before = SUBMISSIONS.earlier(key, fingerprint)
if before then
  return before
end
if redis.call('HLEN', batch_key) - (disturbed and 3 or 2) ~= chunks then
  return { 'INCOMPLETE' }
end
local closed = workflow ~= '' and new == '' and SUBMISSIONS.refuses_jobs(workflow)
if closed then
  return closed
end
redis.call('HSET', batch_key, 'state', 'open', 'workflow', workflow)
redis.call('ZADD', P .. 'batches', NOW_TEXT, batch)
if workflow ~= '' then
  SUBMISSIONS.store_workflow(workflow, new, made_at, size)
end
SUBMISSIONS.remember(key, fingerprint, first, size, workflow)
SUBMISSIONS.flush_remembered(ttl_ms)
return { 'OPEN', tonumber(made_at) }
