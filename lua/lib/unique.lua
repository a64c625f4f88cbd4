-- unique: keys that one job at a time holds. unique:<key> (STRING, with a TTL) names that job and its run.
-- uses: formats
--
-- A job has its key in its field `unique`, and the hook `unique`. The submission or retry takes the key. The hook
-- releases it when the job ends or starts, as `unique` states, if the key still names this job and this run.

local UNIQUE = {}

do

function UNIQUE.parse(text)
  local till, on_conflict, ttl_ms, name = FORMATS.read_unique(text)
  return name and { till = till, on_conflict = on_conflict, ttl_ms = ttl_ms, name = name, key = P .. 'unique:' .. name }
end

-- Return the job that holds a key, or nil. The entry of a job that was deleted, has
-- ended or has a new run does not count.
function UNIQUE.holder_of(key)
  local id, run = FORMATS.read_holder(redis.pcall('GET', key))
  local job = id and read(id)
  if not job or TERMINAL[job.status] or int(job.run) ~= run then
    return nil
  end
  local state = not job.batch or redis.call('HGET', P .. 'batch:' .. job.batch, 'state')
  return state and state ~= 'aborted' and job or nil
end

function UNIQUE.take(unique, id, run)
  redis.call('SET', unique.key, FORMATS.holder(id, run), 'PX', unique.ttl_ms)
end

function UNIQUE.free(unique, id, run)
  if redis.pcall('GET', unique.key) == FORMATS.holder(id, run) then
    redis.call('DEL', unique.key)
  end
end

-- Return the job that prevents a rerun of this one, and the key that both need; nil if there is none.
function UNIQUE.kept_off_by(job)
  local unique = has_hook(job.hooks, 'unique') and UNIQUE.parse(job.unique)
  local other = unique and UNIQUE.holder_of(unique.key)
  if other and other.id ~= job.id then
    return other.id, unique.name
  end
  return nil
end

-- End a job at once if it cannot have its key for a rerun that was not requested for this job itself.
local function end_without_key(job, other)
  redis.call('HSET', job_key(job.id), 'status', 'cancelled', 'finished_at', NOW_TEXT, 'reason', 'cancelled',
    'error', 'cancelled: job ' .. other.id .. ' holds its unique key')
  job.reason = 'cancelled'
  return 'cancelled'
end

function HOOKS.unique(job, from, to)
  local row = redis.call('HMGET', job_key(job.id), 'unique', 'run')
  local unique, run = UNIQUE.parse(row[1]), row[2] or '1'
  if not unique then
    return
  end
  if TERMINAL[to] or to == 'running' and unique.till == 'started' then
    UNIQUE.free(unique, job.id, run)
  elseif TERMINAL[from] then
    local other = UNIQUE.holder_of(unique.key)
    if not other then
      UNIQUE.take(unique, job.id, run)
    elseif not has_hook(job.hooks, 'array') then -- an array continues as its tasks do
      return end_without_key(job, other)
    end
  elseif from == 'running' and unique.till == 'started' and not UNIQUE.holder_of(unique.key) then
    UNIQUE.take(unique, job.id, run) -- it waits again
  end
end

end
