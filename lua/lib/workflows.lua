-- workflows: stop a workflow, cancel all dependents of a job, and start the final job when all others have ended.
-- uses: formats ends arrays
--
-- workflow:<id> (HASH) has its counts and these fields: `watched` (its jobs have the hook `workflow`); `on_failure`;
-- `final` (the id of the final job); `stopped` (`cancelled`, or `failed`, with the failed job in `stopped_by`);
-- `stop_at`, during a stop: the position that it has reached in the list of jobs. The walks `workflow:<id>` and
-- `cascade:<job>` are entries of `propagate`, so that any process can continue them.
--
-- A job that was cancelled with its dependents has `cascade`, the number of that cancel. Until all dependents are
-- visited, it also has `cascade_at`, the position of the next one. An older cancel stops where a newer one has been, so
-- no edge is walked twice for one cancel.

local WORKFLOWS = {}

do

local STEP = 100
local stirred = {} -- workflow → `ended`, or `again` if the final job may have to run again

function WORKFLOWS.key(workflow)
  return P .. 'workflow:' .. workflow
end

-- Make a stop visit the workflow's jobs, from a position in their list on.
function WORKFLOWS.go_on_stopping(workflow, from)
  local at = redis.call('HGET', WORKFLOWS.key(workflow), 'stop_at')
  if not at then
    redis.pcall('RPUSH', P .. 'propagate', 'workflow:' .. workflow)
  end
  if not at or tonumber(at) > from then
    redis.call('HSET', WORKFLOWS.key(workflow), 'stop_at', int(from))
  end
end

-- Cancel an unfinished job that was not cancelled before: a started array with all its tasks. `by`: see `cancel`.
function WORKFLOWS.cancel_any(job, by)
  if job.cancel_requested_at then
    return
  elseif ARRAYS.is_array(job) and ARRAYS.row(job.id).started then
    redis.call('HSET', job_key(job.id), 'cancel_requested_at', NOW_TEXT)
    ARRAYS.stop(job)
  else
    ENDS.cancel(job, by)
  end
end

local function stop_job(id, how, cause)
  local job = read(id)
  if not job or TERMINAL[job.status] then
    return
  end
  if how == 'cancelled' then
    WORKFLOWS.cancel_any(job, { with = 'workflow', error = 'cancelled with its workflow' })
  elseif job.status ~= 'running' and not (ARRAYS.is_array(job) and ARRAYS.row(id).started) then
    local error = 'cancelled: ' .. (cause or 'a job') .. ' has failed, which stops the workflow'
    ENDS.cancel(job, { with = 'failure', caused_by = cause, error = error })
  end
end

-- Cancel the next jobs of a stopped workflow; returns how many were visited, and whether they were the last.
function WALKS.workflow(workflow, budget)
  local key, limit = WORKFLOWS.key(workflow), math.min(budget, STEP)
  local how, cause, at, final = unpack(redis.call('HMGET', key, 'stopped', 'stopped_by', 'stop_at', 'final'))
  if not how or not at then
    return 1, true
  end
  local ids = redis.call('LRANGE', key .. ':jobs', at, int(tonumber(at) + limit - 1))
  for _, id in ipairs(ids) do
    if id ~= final and not pcall(stop_job, id, how, cause) then
      quarantine(id)
    end
  end
  if #ids < limit then
    redis.call('HDEL', key, 'stop_at')
    return #ids, true
  end
  redis.call('HSET', key, 'stop_at', int(tonumber(at) + limit))
  return #ids, false
end

-- Return a number that is higher than that of every earlier cascade, also within the same millisecond.
function WORKFLOWS.new_cascade()
  local last = tonumber(redis.call('HGET', KEYS[1], 'cascade') or '') or 0
  local token = int(math.max(NOW, last + 1))
  redis.call('HSET', KEYS[1], 'cascade', token)
  return token
end

function WORKFLOWS.push_cascade(job, token)
  if not job.cascade_at then -- otherwise it is under way, and starts again
    redis.pcall('RPUSH', P .. 'propagate', 'cascade:' .. job.id)
  end
  job.cascade, job.cascade_at = token, '0'
  redis.call('HSET', job_key(job.id), 'cascade', token, 'cascade_at', '0')
end

local function cascade_to(id, parent, token)
  local job = read(id)
  local before = visible(job) and tonumber(job.cascade or '')
  if not visible(job) or before and before >= tonumber(token) then
    return
  end
  if job.children or ARRAYS.is_array(job) then
    WORKFLOWS.push_cascade(job, token) -- before a walk visits its own edges: it would skip jobs that the cascade has to cancel
  end
  if not TERMINAL[job.status] then
    local error = 'cancelled with ' .. parent .. ', on which it depends'
    WORKFLOWS.cancel_any(job, { with = 'dependency', caused_by = parent, error = error })
  end
end

-- Return the next dependents of a job from a position on: first its children, then the arrays that follow it
-- (`f<position>`). Also return the next position, nil if there is none.
local function next_dependents(id, at, limit)
  local follows, from = string.match(at, '^(f?)(%d+)$')
  local found = {}
  if not from then
    return found -- the position is damaged
  elseif follows == '' then
    for i, edge in ipairs(redis.call('LRANGE', job_key(id) .. ':children', from, int(tonumber(from) + limit - 1))) do
      found[i] = select(2, FORMATS.read_child(edge)) or ''
    end
  else
    for i, follower in ipairs(FOLLOWS.some(id, tonumber(from), limit)) do
      found[i] = follower
    end
  end
  if #found == limit then
    return found, follows .. int(tonumber(from) + limit)
  end
  return found, follows == '' and 'f0' or nil
end

-- Cancel the next dependents of a job; returns how many, and whether they were the last.
function WALKS.cascade(id, budget)
  local limit, done = math.min(budget, STEP), 0
  local token, at = unpack(redis.call('HMGET', job_key(id), 'cascade', 'cascade_at'))
  while token and at and done < limit do -- bound: each turn continues with other dependents, at most `limit` in all
    local found
    found, at = next_dependents(id, at, limit - done)
    for _, child in ipairs(found) do
      if not pcall(cascade_to, child, id, token) then
        quarantine(child)
      end
    end
    done = done + #found
    if at then
      redis.call('HSET', job_key(id), 'cascade_at', at)
    else
      redis.call('HDEL', job_key(id), 'cascade_at')
    end
  end
  if at and not token then -- damaged: visits of the job's edges would wait for this walk forever
    redis.call('HDEL', job_key(id), 'cascade_at')
  end
  return done, not (token and at)
end

function HOOKS.workflow(job, from, to)
  local workflow = job.workflow
  if not workflow or from and not TERMINAL[from] and not TERMINAL[to] then
    return nil -- the job is not new, has not ended and does not run again
  end
  if not from then
    if job.final then
      redis.call('HSET', job_key(job.id), 'status', 'blocked')
      redis.call('HSET', WORKFLOWS.key(workflow), 'final', job.id)
      stirred[workflow] = stirred[workflow] or 'ended'
      return 'blocked'
    end
  elseif job.final then
    stirred[workflow] = TERMINAL[to] and to ~= 'cancelled' and 'again' or stirred[workflow] or 'ended'
  elseif TERMINAL[to] then
    stirred[workflow] = stirred[workflow] or 'ended'
    local key = WORKFLOWS.key(workflow)
    if to == 'failed' and redis.call('HGET', key, 'on_failure') == 'stop'
      and redis.call('HSETNX', key, 'stopped', 'failed') == 1 then
      redis.call('HSET', key, 'stopped_by', job.id)
      WORKFLOWS.go_on_stopping(workflow, 0)
    end
  else
    stirred[workflow] = 'again'
    WORKFLOWS.resume(job) -- the rerun of this job, of one of its tasks, or of a dependency has caused this
  end
end

-- Return the final job, and how many others have not ended; nil if there is none, or a count is damaged: see doctor.
local function read_final(workflow)
  local row = redis.call('HMGET', WORKFLOWS.key(workflow), 'final', 'size', 'done', 'failed', 'cancelled', 'skipped')
  local final, others = row[1] and read(row[1]), tonumber(row[2] or 0)
  for i = 3, 6 do
    local ended = tonumber(row[i] or 0)
    others = others and ended and others - ended
  end
  if final and others then
    return final, others - (TERMINAL[final.status] and 0 or 1)
  end
end

-- Whether the final job is waiting although all others have ended. With `start`, the flush starts it.
function WORKFLOWS.final_may_start(workflow, start)
  local final, others = read_final(workflow)
  if start then
    stirred[workflow] = 'ended'
  end
  return final and final.status == 'blocked' and not final.batch and others <= 0
end

-- Start the final job once all others have ended, or make it wait again when one of them
-- runs again. Returns whether it moved.
local function settle_final(workflow, what)
  local final, others = read_final(workflow)
  if not final then
    return false
  end
  if final.status == 'blocked' and others <= 0 then
    local status = ready_state(final)
    redis.call('HSET', job_key(final.id), 'status', status)
    move(final, status)
    return true
  elseif what == 'again' and others > 0 and TERMINAL[final.status] and final.status ~= 'cancelled' then
    ENDS.start_again(final)
    return true
  end
  return false
end

AFTER_FLUSH[#AFTER_FLUSH + 1] = function()
  local workflows, moved = stirred, false
  stirred = {}
  for workflow, what in pairs(workflows) do
    local ok, has_moved = pcall(settle_final, workflow, what)
    moved = ok and has_moved or moved -- a damaged one does not affect the others (see doctor)
  end
  return moved
end

-- Resume a workflow whose stop is complete, because one of its jobs runs again.
function WORKFLOWS.resume(job)
  if job.workflow and not redis.call('HGET', WORKFLOWS.key(job.workflow), 'stop_at') then
    redis.call('HDEL', WORKFLOWS.key(job.workflow), 'stopped', 'stopped_by')
  end
end

end
