-- deletion: delete an ended job with all its data.
-- uses: formats

local DELETION = {}

do

local GONE_AT_ONCE = 20 -- entries of `:followers` dropped per call

function DELETION.unfinished(workflow)
  local counts_now = redis.call('HMGET', P .. 'workflow:' .. workflow, 'size', 'done', 'failed', 'cancelled', 'skipped')
  local ended = 0
  for i = 2, 5 do
    ended = ended + tonumber(counts_now[i] or 0)
  end
  return counts_now[1] and ended < tonumber(counts_now[1])
end

-- Delete a workflow together with its last job.
local function leave_workflow(workflow)
  local key = P .. 'workflow:' .. workflow
  if redis.call('HINCRBY', key, 'swept', '1') >= tonumber(redis.call('HGET', key, 'size') or 0) then
    redis.call('UNLINK', key, key .. ':jobs')
  end
end

-- Whether a walk still has to visit the job's dependents: for its own end, for the end
-- of a task, or for a cascading cancel.
function DELETION.is_walked(job)
  return job.edge_cursor or (job.children or job.hooks) and job.cascade_at
    or has_hook(job.hooks, 'array') and redis.call('EXISTS', P .. 'array:' .. job.id .. ':ended') == 1
end

-- Return the array of a task and the task's index, if the array is still stored.
local function stored_array_of(job)
  local array = job.hooks and job.array
  if array and redis.call('EXISTS', P .. 'array:' .. array) == 1 then
    return array, job.index
  end
end

-- Whether arrays that follow this one are still stored. Their tasks may run again, and then need the outcome of its
-- tasks. Followers that are gone leave the list, so each is checked once.
function DELETION.has_followers(job)
  local key = has_hook(job.hooks, 'array') and P .. 'array:' .. job.id .. ':followers'
  for _ = 1, key and GONE_AT_ONCE or 0 do
    local first = redis.call('LINDEX', key, '0')
    if not first then
      return false
    elseif redis.call('EXISTS', job_key(first)) == 1 then
      return true
    end
    redis.call('LPOP', key)
    redis.call('HDEL', P .. 'array:' .. job.id, 'unfollowed') -- positions in the list have moved
  end
  return key and true
end

-- Whether a job is still needed: a walk has to visit its dependents, its workflow has
-- unfinished jobs, or its array may run it again.
function DELETION.is_needed(job)
  return DELETION.is_walked(job) or job.workflow and DELETION.unfinished(job.workflow) or job.status ~= 'done' and stored_array_of(job)
end

function DELETION.delete(job)
  local key = job_key(job.id)
  local gone = { key, key .. ':parents', key .. ':children', key .. ':heartbeat' }
  if has_hook(job.hooks, 'array') then
    for _, part in ipairs({ '', ':values', ':skip', ':turns', ':swept', ':followers', ':ended' }) do
      gone[#gone + 1] = P .. 'array:' .. job.id .. part
    end
  end
  for _, attempt in ipairs(FORMATS.read_outputs(redis.call('HGET', key, 'outputs'))) do
    gone[#gone + 1] = key .. ':output:' .. attempt.fence
  end
  local array, place = stored_array_of(job)
  if array and job.status == 'done' then -- otherwise a retry of the array would run this task again
    redis.pcall('SETBIT', P .. 'array:' .. array .. ':swept', place, '1')
  end
  redis.call('UNLINK', unpack(gone))
  index_status(job, job.status, false)
  index(P .. 'jobs', job.id, false)
  count(queue_key(job.queue), job.status, -1)
  count(queue_key(job.queue), 'deleted', 1)
  if job.workflow then
    leave_workflow(job.workflow)
  end
end

end
