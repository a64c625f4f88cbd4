-- tasks: cancel and retry single tasks of an array.
-- uses: timers ends arrays workflows

local TASKS = {}

do

-- Cancel one task.
function TASKS.cancel(head, row, place)
  local task = read(ARRAYS.task_id(head, place))
  if row.turns > 0 then
    redis.call('ZREM', ARRAYS.key(head.id) .. ':turns', int(place))
  end
  if task and not TERMINAL[task.status] then
    return ENDS.cancel(task) and 'cancelling' or 'cancelled'
  elseif task then
    return task.status == 'cancelled' and 'cancelled' or 'ended'
  elseif ARRAYS.was_done(head.id, place) then
    return 'ended'
  elseif place >= row.prefix and not redis.call('HGET', ARRAYS.key(head.id), 'dropped')
    and redis.call('SADD', ARRAYS.key(head.id) .. ':skip', int(place)) == 1 then
    FOLLOWS.note(head.id, int(place))
    count(ARRAYS.key(head.id), 'cancelled', 1)
    count(queue_key(head.queue), 'reserved', -1)
    ARRAYS.touch(head.id)
  end
  return 'cancelled'
end

-- Retry one task that has not succeeded: at once, or when `parallel` allows it.
function TASKS.retry(head, row, place)
  local stopped = row.follows and (head.cancel_requested_at or TIMERS.expired_at(head))
  local id = ARRAYS.task_id(head, place)
  local task = read(id)
  local done = task and task.status == 'done' or not task and ARRAYS.was_done(head.id, place)
  local wanted = task and (task.status == 'failed' or task.status == 'cancelled')
    or not task and place < row.prefix and not done
  if wanted and row.parallel then
    return ARRAYS.wait_for_turn(head.id, place) and 'retried' or 'not_ended'
  elseif wanted then
    ARRAYS.run_again(head, row, place)
    return 'retried'
  elseif done then
    return 'ended'
  elseif stopped and not TERMINAL[head.status] then
    return 'not_ended' -- nothing would create it
  elseif redis.call('SREM', ARRAYS.key(head.id) .. ':skip', int(place)) == 1 then
    count(ARRAYS.key(head.id), 'cancelled', -1)
    count(queue_key(head.queue), 'reserved', 1)
    ARRAYS.touch(head.id)
    if row.follows then -- if the array has ended, it opens again: its cancel or deadline must not stop the task
      redis.call('HDEL', job_key(head.id), 'cancel_requested_at', 'expired_at')
      FOLLOWS.catch_up(head, row, place)
    end
    return 'retried'
  end
  return 'not_ended'
end

-- Retry all tasks that have not succeeded.
local function retry_tasks(head)
  local skip = ARRAYS.key(head.id) .. ':skip'
  local number = redis.call('SCARD', skip)
  count(ARRAYS.key(head.id), 'cancelled', -number)
  count(queue_key(head.queue), 'reserved', number)
  redis.call('UNLINK', skip)
  redis.call('HDEL', ARRAYS.key(head.id), 'retried')
  redis.call('HSET', ARRAYS.key(head.id), 'walk', 'retry', 'walk_at', '0')
  ARRAYS.work_on(head.id)
end

-- Rerun a job that has ended without success, as an operator's retry does. Of an array, its unsuccessful tasks run
-- again. A task may have to wait until `parallel` allows it.
function TASKS.rerun(job)
  WORKFLOWS.resume(job)
  local array = job.hooks and job.array
  if array and redis.call('HEXISTS', ARRAYS.key(array), 'parallel') == 1 then
    ARRAYS.wait_for_turn(array, tonumber(job.index))
    return
  end
  ENDS.start_again(job)
  if ARRAYS.is_array(job) then
    retry_tasks(job)
  end
end

end
