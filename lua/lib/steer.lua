-- steer: apply a bulk action to one job, or an operator's action to a finished one. Each function returns
-- true on success, or nil and the reason.
-- uses: jobs unique slots ends arrays workflows tasks deletion

local STEER = {}

do

local TASKS_DELETED, FOLLOWERS_LOOKED_AT = 100, 200 -- in one call

-- Delete some tasks of an ended array; returns whether none are left.
local function delete_tasks(head)
  local key = ARRAYS.key(head.id)
  local size, deleted = unpack(redis.call('HMGET', key, 'size', 'deleted'))
  local from, size_now = tonumber(deleted or 0), tonumber(size or 0)
  local behind = math.min(size_now, from + TASKS_DELETED)
  for place = from, behind - 1 do
    local task = read(ARRAYS.task_id(head, place))
    if task and DELETION.is_walked(task) and redis.call('EXISTS', P .. 'propagate') == 1 then
      behind = place -- jobs may depend on a task, too
      break
    elseif task and TERMINAL[task.status] then
      DELETION.delete(task)
    end
  end
  redis.call('HSET', key, 'deleted', int(behind))
  return behind >= size_now
end

-- Whether an unfinished array follows this one. nil: some followers are not checked yet, call again.
local function is_followed(array)
  local key = ARRAYS.key(array)
  local from = tonumber(redis.call('HGET', key, 'unfollowed') or '') or 0
  local some = FOLLOWS.some(array, from, FOLLOWERS_LOOKED_AT)
  for _, follower in ipairs(some) do
    local head = read(follower)
    if head and not TERMINAL[head.status] then
      redis.call('HDEL', key, 'unfollowed')
      return true
    end
  end
  if #some < FOLLOWERS_LOOKED_AT then
    return false
  end
  redis.call('HSET', key, 'unfollowed', int(from + #some))
  return nil
end

-- Whether an ended array has tasks that will run again: it may still be unaware of them (see `walk`).
local function has_unfinished_tasks(array)
  local row = ARRAYS.row(array)
  return row.ended < row.size or row.turns > 0
end

-- Delete a finished job. Returns true and 'later' if its array has more tasks: call again.
function STEER.delete(job)
  if job.hooks and job.array then
    return nil, 'it is a task: delete its array'
  elseif DELETION.is_walked(job) then
    return nil, 'its dependents have not been notified of its end yet'
  elseif DELETION.is_needed(job) then
    return nil, 'its workflow has jobs that have not ended'
  elseif ARRAYS.is_array(job) and has_unfinished_tasks(job.id) then
    return nil, 'it has tasks that have not ended'
  end
  if ARRAYS.is_array(job) then
    local followed = is_followed(job.id)
    if followed then
      return nil, 'an array that has not ended follows it'
    elseif followed == nil or not delete_tasks(job) then
      return true, 'later'
    end
  end
  DELETION.delete(job)
  return true
end

function STEER.cancel(job)
  WORKFLOWS.cancel_any(job, {})
  return true
end

function STEER.retry(job)
  if job.broken > 0 then
    return nil, 'it waits for ' .. (job.caused_by or 'another job')
  end
  local head = ARRAYS.head_of(job)
  if job.hooks and job.array and head == job then
    return nil, 'its array is gone'
  end
  local holder, key = UNIQUE.kept_off_by(head)
  if holder then
    return nil, 'job ' .. holder .. ' holds its unique key ' .. key
  end
  if ARRAYS.is_array(head) and redis.call('HEXISTS', ARRAYS.key(head.id), 'deleted') == 1 then
    return nil, 'the tasks of its array are being deleted'
  end
  TASKS.rerun(job)
  return true
end

-- Move a waiting job to the end of another queue or priority.
function STEER.move(job, queue, priority)
  if job.hooks and (ARRAYS.is_array(job) or job.array) then
    return nil, 'arrays and their tasks stay in their queue'
  elseif job.batch then
    return nil, 'its submission is not complete'
  end
  local status = job.status
  if status == 'pending' then
    ENDS.leave_list(job, ENDS.SHORT_LIST_OF_MANY)
  end
  local in_line = status == 'pending' and has_hook(job.hooks, 'concurrency')
  if in_line then
    SLOTS.leave_line(job)
  end
  leave(job)
  redis.call('HSET', job_key(job.id), 'queue', queue, 'priority', priority)
  job.queue, job.priority = queue, priority
  if in_line then
    SLOTS.said_by(job.id).priority = tonumber(priority)
    SLOTS.join_line(job)
  end
  enter(job, status)
  return true
end

end
