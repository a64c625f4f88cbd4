-- stage: store one chunk of a large submission, not visible yet.
-- uses: core ends edges submissions
--
-- The state of the batch is checked by every call. Further edges of a job of an earlier chunk come as a job without
-- fields.
--
-- ARGV[1]  batch        id of the submission
-- ARGV[2]  chunk        number of this chunk, from 0
-- ARGV[3]  chunks       how many there are
-- ARGV[4]  workflow     id of the workflow that the jobs make, '' for none
-- ARGV[5]  key          idempotency key with its scope, '' for none
-- ARGV[6]  fingerprint  of the request body
-- ARGV[7]  size         number of jobs in this chunk
-- ARGV[8..]  jobs       see lib/submissions; parents before their children
--
-- Returns {"STAGED", now_ms} (now_ms 0 if it was staged before), {"STORED"}, {"CLOSED"}, {"REPEATED", first_id, size, workflow}, {"MISMATCH"}, {"UNKNOWN", id, …} or {"FULL"}

local batch, chunk, chunks, workflow, key, fingerprint = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local size = tonumber(ARGV[7])
local batch_key = P .. 'batch:' .. batch

local before = earlier(key, fingerprint)
if before then
  return before
end
local state = redis.call('HGET', batch_key, 'state')
if state == 'open' or not state and chunk == '0' and redis.call('EXISTS', job_key(ARGV[8])) == 1 then
  return { 'STORED' } -- this very submission was stored before
end
if not state and chunk ~= '0' or state and state ~= 'staging' then
  return { 'CLOSED' }
end
if redis.call('HEXISTS', batch_key, 'chunk:' .. chunk) == 1 then
  return { 'STAGED', 0 } -- the reply to this very call was lost before
end
if redis.call('HGET', KEYS[1], 'full') then
  return { 'FULL' }
end
local jobs = parse_jobs(8, size)
local unknown = resolve_parents(jobs, batch)
if #unknown > 0 then
  table.insert(unknown, 1, 'UNKNOWN')
  return unknown
end

local children, ids = {}, {}
for _, job in ipairs(jobs) do
  store_edges(job, children)
  if job.last > job.first then
    store_job(job, #job.edges > 0 and 'blocked' or ready_state(job), workflow, batch)
    ids[#ids + 1] = job.id
  elseif job.broken then
    redis.call('HINCRBY', job_key(job.id), 'broken', int(job.broken))
    redis.call('HSET', job_key(job.id), 'caused_by', job.broken_by.id)
  end
end
store_children(children)
redis.call('HSET', batch_key, 'state', 'staging', 'chunks', chunks, 'chunk:' .. chunk, '1')
redis.call('ZADD', P .. 'batches', int(NOW), batch)
if #ids > 0 then
  redis.call('RPUSH', batch_key .. ':ids', unpack(ids))
end
return { 'STAGED', NOW }
