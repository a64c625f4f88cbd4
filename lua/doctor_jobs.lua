-- doctor_jobs: check in bulk the simple jobs that stand in all their places; the doctor checks the others one by one.
--
-- A job is simple if no other key says something about it: it has ended, is scheduled or pending, and has no hook. Its
-- places are those of `job_places` in workron/doctor/places.py. The list of a pending job is left to the caller.
--
-- ARGV[1]  jobs  ids of jobs, separated by spaces; at most 300
--
-- Returns {others, queue, priority, ids, …}: the ids of all other jobs, separated by spaces; then pending jobs by list

local ENDED = { done = true, failed = true, cancelled = true, skipped = true }
local others, lists, order, known = {}, {}, {}, {}

local function in_zset(key, member, latest)
  local score = redis.pcall('ZSCORE', key, member)
  if type(score) == 'table' then
    score = score.double -- RESP 3, or an error
  end
  score = tonumber(score or '')
  return score and (not latest or score <= latest)
end

-- Whether a queue is in a set of queues; each is asked for once.
local function listed(key, queue)
  local both = key .. ' ' .. queue
  if known[both] == nil then
    known[both] = in_zset(key, queue) or false
  end
  return known[both]
end

local function is_simple(row, queue)
  local status, fence, priority = row[1], row[5], row[3] or '5'
  return not row.err
    and status
    and (ENDED[status] or status == 'pending' or status == 'scheduled')
    and not (row[6] or row[7] or row[8] or row[9] or row[10] or row[11] or row[12])
    and (row[4] or '') == ''
    and (not fence or (string.find(fence, '^%d+$') and #fence < 16))
    and #queue <= 64
    and string.find(queue, '^[%w_.%-]+$')
    and string.find(priority, '^[1-9]$')
end

local function in_its_places(id, row, queue)
  local status = row[1]
  if not (in_zset(P .. 'jobs', id, 0) and listed(P .. 'queues', queue)) then
    return false
  elseif ENDED[status] then
    return in_zset(P .. 'queue:' .. queue .. ':' .. status, id) and in_zset(P .. 'jobs:' .. status, id)
  elseif status == 'scheduled' then
    local at = row[13] or ''
    return string.find(at, '^%d+$') and #at < 16 and in_zset(P .. 'due', id, tonumber(at))
  end
  return listed(P .. 'queues:pending', queue)
end

for id in string.gmatch(ARGV[1], '%S+') do
  local row = redis.pcall(
    'HMGET', job_key(id), 'status', 'queue', 'priority', 'hooks', 'fence', 'batch', 'workflow', 'array', 'concurrency',
    'edge_cursor', 'cascade_at', 'final', 'run_at'
  ) -- stylua: ignore
  local queue = row[2] or 'default'
  if not (is_simple(row, queue) and in_its_places(id, row, queue)) then
    others[#others + 1] = id
  elseif row[1] == 'pending' then
    local list = queue .. ' ' .. (row[3] or '5')
    if not lists[list] then
      lists[list] = {}
      order[#order + 1] = list
    end
    lists[list][#lists[list] + 1] = id
  end
end
local answer = { table.concat(others, ' ') }
for _, list in ipairs(order) do
  local queue, priority = string.match(list, '^(%S+) (%S+)$')
  answer[#answer + 1] = queue
  answer[#answer + 1] = priority
  answer[#answer + 1] = table.concat(lists[list], ' ')
end
return answer
