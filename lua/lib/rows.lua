-- rows: what a claim reads of a job, and what its worker gets.
-- uses: job_fields

local ROWS = {}

do

local CLAIMED = JOB_FIELDS.CLAIMED -- for the worker; a task takes them from its array
local FIELDS = { 'status', 'queue', 'priority', 'attempts', 'workflow', 'more', 'hooks', 'losses', unpack(CLAIMED) }
local OF_ARRAY = { 'array_size', 'workflow', 'more', unpack(CLAIMED) }
local BEHIND = #CLAIMED - 1 -- how many of them follow the first one
local specs = {} -- array → the fields of its job that all tasks share

-- Read all that a claim needs of a listed job; nil if there is none, or its key is damaged.
function ROWS.read(id)
  local row = redis.pcall('HMGET', job_key(id), unpack(FIELDS))
  if not row[1] then
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
    claimed = row, -- contains them from index `first` on
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

-- Fill in the fields that a task takes from its array, and its index.
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

-- Fill in a task; other jobs stay as they are. If its array is gone or damaged it cannot run, and its end reports that.
function ROWS.complete(job)
  if has_hook(job.hooks, 'task') and not pcall(fill_in, job) then
    quarantine(job.id)
  end
  return job
end

-- Return how many bytes the worker gets.
function ROWS.size(job)
  local bytes = #(job.more or '')
  for at = job.first, job.first + BEHIND do
    bytes = bytes + #(job.claimed[at] or '')
  end
  return bytes
end

-- Whether the job may be a poison job: it lost its worker twice, or once and this is its last attempt. It is claimed
-- alone and runs alone, so that it takes no other job down.
function ROWS.is_suspect(job)
  return job.losses > 1 or job.losses == 1 and job.attempts + 1 >= job.max_attempts
end

-- Return the worker's extra fields as JSON: the job's own, which Redis does not parse, the workflow, and `alone`.
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

-- Return what the worker gets for one claim; false for an unset field. `job` is as it was before the claim.
function ROWS.of_claim(job, fence)
  return { job.id, fence, job.attempts + 1, job.queue, more_of(job), unpack(job.claimed, job.first, job.first + BEHIND) }
end

end
