-- submission_admit: index the next chunk of an open submission. Any process can continue from the work list.
-- uses: formats edges arrays workflows
--
-- ARGV[1]  batch  id of the submission
--
-- Returns {"ADMITTED"} if all chunks are admitted, {"MORE"}, or {"CLOSED"} if the submission is not open

local batch = ARGV[1]
local batch_key = P .. 'batch:' .. batch

local state, workflow, disturbed = unpack(redis.call('HMGET', batch_key, 'state', 'workflow', 'disturbed'))
if state ~= 'open' then
  return { 'CLOSED' }
end

workflow = workflow or redis.call('HGET', job_key(batch), 'workflow') or '' -- the batch has the id of its first job

local queues = {}
local members = {} -- of this chunk, in order
local scores = {} -- for the index of all jobs: 0, id, …

local function note(id)
  members[#members + 1] = id
  scores[#scores + 1] = '0'
  scores[#scores + 1] = id
end

-- Return the status that is due now: parents may have ended, and due times passed, while the batch was staged.
local function state_of(job)
  if job.status == 'blocked' and redis.call('EXISTS', job_key(job.id) .. ':parents') == 1 then
    return 'blocked'
  end
  return job.status == 'pending' and 'pending' or ready_state(job)
end

local function settle_staged(job)
  if job.status == 'blocked' and job.broken > 0 then
    return EDGES.skip(job, read(job.caused_by) or { id = job.caused_by, status = 'otherwise' })
  end
  local status = state_of(job)
  if status ~= job.status then
    redis.call('HSET', job_key(job.id), 'status', status)
  end
  redis.call('HDEL', job_key(job.id), 'batch')
  job.batch = false
  arrive(job, status)
end

local function admit(id)
  local job = read(id)
  if job then
    queues[job.queue] = true
    note(id)
    if ARRAYS.is_array(job) then
      count(queue_key(job.queue), 'reserved', -tonumber(job.array_size))
    end
    if job.batch then -- otherwise it was cancelled meanwhile
      settle_staged(job)
    end
  end
end

-- Admit jobs with a known status. A job that is still in the batch has that status.
local function admit_alike(ids, status, priority, queue)
  local job = { queue = queue, priority = priority, workflow = workflow ~= '' and workflow }
  queues[queue] = true
  for _, id in ipairs(ids) do
    if redis.pcall('HDEL', job_key(id), 'batch') == 1 then
      note(id)
      job.id = id
      enter(job, status)
    else
      admit(id)
    end
  end
end

for _, run in ipairs(FORMATS.read_alike(redis.call('LPOP', batch_key .. ':ids'))) do
  count(queue_key(run.queue), 'reserved', -#run.ids) -- the counts of their statuses include them now
  if run.status == '' or run.status == 'blocked' and disturbed then
    for _, id in ipairs(run.ids) do
      admit(id)
    end
  else
    admit_alike(run.ids, run.status, run.priority, run.queue)
  end
end
for queue in pairs(queues) do
  redis.call('ZADD', P .. 'queues', '0', queue)
end
if #members > 0 then
  redis.call('ZADD', P .. 'jobs', unpack(scores))
  if workflow ~= '' then
    local length = redis.call('RPUSH', P .. 'workflow:' .. workflow .. ':jobs', unpack(members))
    if redis.call('HGET', P .. 'workflow:' .. workflow, 'stopped') then
      WORKFLOWS.go_on_stopping(workflow, length - #members)
    end
  end
end
flush()
if redis.call('EXISTS', batch_key .. ':ids') == 1 then
  redis.call('ZADD', P .. 'batches', NOW_TEXT, batch)
  return { 'MORE' }
end
redis.call('DEL', batch_key, batch_key .. ':reserved')
redis.call('ZREM', P .. 'batches', batch)
return { 'ADMITTED' }
