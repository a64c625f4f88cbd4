-- doctor_survey: run read commands as of one moment, and return the jobs that have moved since an earlier event.
-- uses: together
--
-- The doctor reads all jobs in pages, and gets with each page the jobs that have moved meanwhile. So it knows at each
-- page exactly how many jobs are in each state, on a running system (see workron/doctor/tally.py).
--
-- ARGV[1]  since     id of the last known event, '-' to read no events
-- ARGV[2]  jobs      ids of jobs to read, separated by spaces
-- ARGV[3..]  commands  number of words, word, … (see lib/together)
--
-- Returns {"SURVEYED", last, more, {answer, …}, {id, status, queue, workflow, array, key}, …}; last: id of the last
-- event read; more: 1 if there are later events; status '': the job does not exist, or is not admitted; array: the
-- array of a task; key: concurrency key; or {"LOST"}: events after `since` may be gone, begin again

local since, jobs = ARGV[1], ARGV[2]
local EVENTS, ROWS = 100, 500 -- most per call; an event of many jobs is read to its end
local rows, seen, keys_of = {}, {}, {}

local function key_of(array, own)
  if own or not array then
    return own or ''
  end
  if keys_of[array] == nil then
    local key = redis.pcall('HGET', job_key(array), 'concurrency')
    keys_of[array] = type(key) == 'string' and key or ''
  end
  return keys_of[array]
end

local function add(id)
  if seen[id] then
    return
  end
  seen[id] = true
  local row = redis.pcall('HMGET', job_key(id), 'status', 'queue', 'workflow', 'array', 'concurrency', 'batch')
  if row.err or not row[1] or row[6] then
    rows[#rows + 1] = { id, '', '', '', '', '' }
    return
  end
  rows[#rows + 1] = { id, row[1], row[2] or 'default', row[3] or '', row[4] or '', key_of(row[4], row[5]) }
end

for id in string.gmatch(jobs, '%S+') do
  add(id)
end
local last, more = since, 0
if since ~= '-' then
  if #redis.call('XRANGE', P .. 'events', since, since) == 0 and since ~= '0' then
    return { 'LOST' }
  end
  local events = redis.call('XRANGE', P .. 'events', '(' .. since, '+', 'COUNT', int(EVENTS))
  more = #events == EVENTS and 1 or 0
  for at, event in ipairs(events) do
    for i = 2, #event[2], 2 do
      for id in string.gmatch(event[2][i], '%S+') do
        add(id)
      end
    end
    last = event[1]
    if #rows >= ROWS and at < #events then
      more = 1
      break
    end
  end
end
local answers, failed = TOGETHER.run(3)
return failed or { 'SURVEYED', last, more, answers, unpack(rows) }
