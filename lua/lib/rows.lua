-- rows: what a claim reads of a job, and what the worker gets of it.

local ROWS = {
  FIELDS = {
    'status', 'queue', 'priority', 'attempts', 'workflow', 'command', 'argv', 'timeout_ms', 'env', 'cwd', 'more', 'hooks',
    'losses',
  },
  PAYLOADS = { 6, 7, 9, 10, 11 }, -- places of what may be large
}

do

local SPEC = { 'command', 'argv', 'timeout_ms', 'env', 'cwd', 'more', 'array_size', 'workflow' }
local specs = {} -- array → what its tasks have in common

-- Fill in what a task has from its array, and which one it is.
local function fill_in(id, row)
  row.array = redis.call('HGET', job_key(id), 'array')
  local array, place = string.match(row.array, '^(%S+) (%d+)$')
  local spec = specs[array] or redis.call('HMGET', job_key(array), unpack(SPEC))
  specs[array] = spec
  local more = spec[6] and cjson.decode(spec[6]) or {}
  local value = redis.call('LINDEX', P .. 'array:' .. array .. ':values', place)
  more.array = { id = array, index = tonumber(place), size = tonumber(spec[7]), value = value or nil }
  more.workflow = spec[8] or nil
  row[11] = cjson.encode(more)
  for i = 1, 5 do
    row[5 + i] = spec[i]
  end
end

-- Do so if it is a task. Where its array is gone or damaged it can't be run, which is reported as its end.
function ROWS.with_array(id, row)
  if has_hook(row[12], 'task') and not pcall(fill_in, id, row) then
    quarantine(id)
  end
  return row
end

-- Whether workers were lost with a job so often that it may be what kills them: twice, or once and this is its last
-- attempt. Nothing else is claimed with it, nor run beside it, so that it takes no other job along.
function ROWS.is_suspect(id, row)
  local losses = tonumber(row[13] or 0) or 0
  return losses > 1
    or losses == 1 and (tonumber(row[4]) or 0) + 1 >= setmetatable({ id = id, hooks = row[12] }, JOB).max_attempts
end

-- What the worker is told beside the usual: JSON that Redis does not look into, the workflow, and whether it is a suspect.
local function more_of(id, row)
  local alone = ROWS.is_suspect(id, row)
  if not (row[5] or alone) then
    return row[11]
  end
  local own = {}
  own[#own + 1] = row[5] and '"workflow":"' .. row[5] .. '"' or nil
  own[#own + 1] = alone and '"alone":true' or nil
  return '{' .. table.concat(own, ',') .. (row[11] and ',' .. string.sub(row[11], 2) or '}')
end

-- What the worker gets of one claim; false where a field is unset. `row` is as it was before the claim.
function ROWS.of_claim(id, fence, attempt, row)
  return { id, fence, attempt, row[2] or 'default', row[6], row[7], row[8], row[9], row[10], more_of(id, row) }
end

end
