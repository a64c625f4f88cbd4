-- admit: put the next jobs of an open submission into their indexes; the work list makes it resumable by anyone.
-- uses: core ends edges
--
-- ARGV[1]  batch  id of the submission
-- ARGV[2]  limit  most jobs to admit, 1..400
--
-- Returns {"ADMITTED"} when all are, {"MORE"}, or {"CLOSED"} when the submission is not open

local batch, limit = ARGV[1], ARGV[2]
local batch_key = P .. 'batch:' .. batch

local state, workflow = unpack(redis.call('HMGET', batch_key, 'state', 'workflow'))
if state ~= 'open' then
  return { 'CLOSED' }
end

-- The state that is due by now: parents may have ended, and times may have come, while the batch was staged.
local function state_of(job)
  if job.status == 'blocked' and redis.call('EXISTS', job_key(job.id) .. ':parents') == 1 then
    return 'blocked'
  end
  return job.status == 'pending' and 'pending' or ready_state(job)
end

local function admit(job)
  if job.status == 'blocked' and job.broken > 0 then
    return skip(job, read(job.caused_by) or { id = job.caused_by, status = 'otherwise' })
  end
  local status = state_of(job)
  if status ~= job.status then
    redis.call('HSET', job_key(job.id), 'status', status)
  end
  redis.call('HDEL', job_key(job.id), 'batch')
  job.batch = nil
  enter(job, status)
end

local ids = redis.call('LPOP', batch_key .. ':ids', limit) or {}
local queues = {}
for _, id in ipairs(ids) do
  local job = read(id)
  if job then
    queues[job.queue] = true
    index(P .. 'jobs', id, 0)
    if job.batch then -- else it was cancelled meanwhile
      admit(job)
    end
  end
end
for queue in pairs(queues) do
  redis.call('SADD', P .. 'queues', queue)
end
if workflow ~= '' and #ids > 0 then
  redis.call('RPUSH', P .. 'workflow:' .. workflow .. ':jobs', unpack(ids))
end
flush()
if redis.call('EXISTS', batch_key .. ':ids') == 1 then
  redis.call('ZADD', P .. 'batches', int(NOW), batch)
  return { 'MORE' }
end
redis.call('DEL', batch_key)
redis.call('ZREM', P .. 'batches', batch)
return { 'ADMITTED' }
