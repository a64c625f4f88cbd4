-- open: make a large submission visible at once, when all its chunks are there. `admit` then puts its jobs to work.
-- uses: core submissions
--
-- ARGV[1]  batch        id of the submission
-- ARGV[2]  workflow     id of the workflow that the jobs make, '' for none
-- ARGV[3]  name         the workflow's name, may be ''
-- ARGV[4]  key          idempotency key with its scope, '' for none
-- ARGV[5]  fingerprint  of the request body
-- ARGV[6]  ttl_ms       how long the key is remembered, ms
-- ARGV[7]  first        id of the first job
-- ARGV[8]  size         number of jobs
--
-- Returns {"OPEN"}, {"INCOMPLETE"}, {"CLOSED"}, {"REPEATED", first_id, size, workflow} or {"MISMATCH"}

local batch, workflow, name = ARGV[1], ARGV[2], ARGV[3]
local key, fingerprint, ttl_ms, first, size = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local batch_key = P .. 'batch:' .. batch

local state, chunks = unpack(redis.call('HMGET', batch_key, 'state', 'chunks'))
if state == 'open' then
  return { 'OPEN' }
end
if state ~= 'staging' then
  -- Admitted already, when the reply to this very call was lost; else the sweep gave it up.
  return { redis.call('EXISTS', job_key(first)) == 1 and state ~= 'aborted' and 'OPEN' or 'CLOSED' }
end
local before = earlier(key, fingerprint)
if before then
  return before
end
if redis.call('HLEN', batch_key) ~= tonumber(chunks) + 2 then
  return { 'INCOMPLETE' }
end
redis.call('HSET', batch_key, 'state', 'open', 'workflow', workflow)
redis.call('ZADD', P .. 'batches', int(NOW), batch)
if workflow ~= '' then
  redis.call('HSET', P .. 'workflow:' .. workflow, 'created_at', int(NOW), 'size', size, 'name', name)
end
remember(key, fingerprint, first, size, workflow)
flush_remembered(ttl_ms)
return { 'OPEN' }
