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
-- Returns {"SURVEYED", last, more, {answer, …}, n, {ids, status, queue, workflow, array, key}, …}; last: id of the last
-- event read; more: 1 if there are later events; n: number of the rows of `jobs`, which come first; ids: all jobs of
-- this row, separated by spaces; status '': the job does not exist, or is not admitted; array: the array of a task;
-- key: concurrency key; or {"LOST"}: events after `since` may be gone, begin again

local since, jobs = ARGV[1], ARGV[2]
local EVENTS, ROWS = 100, 500 -- most per call; an event of many jobs is read to its end
local rows, places, seen, keys_of, found = {}, {}, {}, {}, 0

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

-- Add a job to the row of the jobs that are counted as it is.
local function add(id)
  if seen[id] then
    return
  end
  seen[id], found = true, found + 1
  local row = redis.pcall('HMGET', job_key(id), 'status', 'queue', 'workflow', 'array', 'concurrency', 'batch')
  if row.err or not row[1] or row[6] then
    row = { '', '', '', '', '' }
  else
    row = { row[1], row[2] or 'default', row[3] or '', row[4] or '', key_of(row[4], row[5]) }
  end
  local name = table.concat(row, '\n')
  local place = places[name]
  if not place then
    place = { {}, row }
    places[name], rows[#rows + 1] = place, place
  end
  place[1][#place[1] + 1] = id
end

for id in string.gmatch(jobs, '%S+') do
  add(id)
end
local of_page = #rows
places = {} -- jobs that have moved come in rows of their own
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
    if found >= ROWS and at < #events then
      more = 1
      break
    end
  end
end
local answers, failed = TOGETHER.run(3)
for at, place in ipairs(rows) do
  rows[at] = { table.concat(place[1], ' '), unpack(place[2]) }
end
return failed or { 'SURVEYED', last, more, answers, of_page, unpack(rows) }
