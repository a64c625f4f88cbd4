-- rows: what a claim reads of a job, and what the worker gets of it.
-- uses: job_fields

local ROWS = {}

do

local CLAIMED = JOB_FIELDS.CLAIMED -- for the worker; a task has them from its array
local FIELDS = { 'status', 'queue', 'priority', 'attempts', 'workflow', 'more', 'hooks', 'losses', unpack(CLAIMED) }
local OF_ARRAY = { 'array_size', 'workflow', 'more', unpack(CLAIMED) }
local BEHIND = #CLAIMED - 1 -- the first one
local specs = {} -- array → what its job says to all tasks

-- Read all that a claim needs of a job in a list; nil where there is none, or its key is damaged.
function ROWS.read(id)
  local row = redis.pcall('HMGET', job_key(id), unpack(FIELDS))
  if row.err or not row[1] then
    return nil
  end
  return setmetatable({
    id = id,
    status = row[1],
    queue = row[2] or 'default',
    priority = row[3] or '5',
    attempts = row[4] and tonumber(row[4]) or 0,
    workflow = row[5],
    more = row[6],
    hooks = row[7],
    losses = row[8] and tonumber(row[8]) or 0,
    claimed = row, -- in which they stand from `first` on
    first = 9,
  }, JOB)
end

local function spec_of(array)
  if not specs[array] then
    local row = redis.call('HMGET', job_key(array), unpack(OF_ARRAY))
    specs[array] = { size = tonumber(row[1]), workflow = row[2] or nil, more = row[3], claimed = row }
  end
  return specs[array]
end

-- Fill in what a task has from its array, and which one it is.
local function fill_in(task)
  task.array, task.index = unpack(redis.call('HMGET', job_key(task.id), 'array', 'index'))
  local array, place = task.array, task.index
  local spec = spec_of(array)
  local value = redis.call('LINDEX', P .. 'array:' .. array .. ':values', place)
  local more = spec.more and cjson.decode(spec.more) or {}
  more.array = { id = array, index = tonumber(place), size = spec.size, value = value or nil }
  more.workflow = spec.workflow
  task.more = cjson.encode(more)
  task.claimed, task.first = spec.claimed, 4
end

-- Do so if it is a task. Where its array is gone or damaged it can't be run, which is reported as its end.
function ROWS.complete(job)
  if has_hook(job.hooks, 'task') and not pcall(fill_in, job) then
    quarantine(job.id)
  end
  return job
end

-- How many bytes the worker gets.
function ROWS.size(job)
  local bytes = #(job.more or '')
  for at = job.first, job.first + BEHIND do
    bytes = bytes + #(job.claimed[at] or '')
  end
  return bytes
end

-- Whether workers were lost with a job so often that it may be what kills them: twice, or once and this is its last
-- attempt. Nothing else is claimed with it, nor run beside it, so that it takes no other job along.
function ROWS.is_suspect(job)
  return job.losses > 1 or job.losses == 1 and job.attempts + 1 >= job.max_attempts
end

-- What the worker is told beside the usual: JSON that Redis does not look into, the workflow, and whether it is a suspect.
local function more_of(job)
  local alone = ROWS.is_suspect(job)
  if not (job.workflow or alone) then
    return job.more
  end
  local own = {}
  own[#own + 1] = job.workflow and '"workflow":"' .. job.workflow .. '"' or nil
  own[#own + 1] = alone and '"alone":true' or nil
  return '{' .. table.concat(own, ',') .. (job.more and ',' .. string.sub(job.more, 2) or '}')
end

-- What the worker gets of one claim; false where a field is unset. `job` is as it was before the claim.
function ROWS.of_claim(job, fence)
  return { job.id, fence, job.attempts + 1, job.queue, more_of(job), unpack(job.claimed, job.first, job.first + BEHIND) }
end

end
