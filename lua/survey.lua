-- survey: read what jobs count as, and what is counted, as of one moment; with all jobs that have moved since another one.
-- uses: core
--
-- Who goes over all jobs in pages, and gets with each page those that have moved meanwhile, knows at each page how many jobs
-- there are in each state, exactly, while all goes on (see workron/doctor/tally.py).
--
-- ARGV[1]  since   id of the last event that is known, '' before the first
-- ARGV[2]  hash    key of a hash of counts to be read, without its prefix, '': none
-- ARGV[3..]  ids   jobs to be read
--
-- Returns {"SURVEYED", last, more, {id, status, queue, workflow, array, key}, …}; last: id of the last event read; more: 1
-- when there were others since; status '': there is no such job, or it is not admitted; array: of a task, `*` of an array itself; key: concurrency key
-- or {"COUNTED", last, more, {field, count, …}, {id, …}, …}: with the hash, and `:recounts` (see INSPECT.count); of a queue, also
-- `:<status>` by its indexes, `:held` by the lines of its concurrency keys, and `:batches`
-- or {"LOST"}: events since then are gone, begin anew

local since, hash = ARGV[1], ARGV[2]
local EVENTS, ROWS, KEYS_OF_QUEUE = 100, 500, 200 -- most that is read; an event of many jobs is read to its end

if since ~= '' and #redis.call('XRANGE', P .. 'events', since, since) == 0 then
  return { 'LOST' }
end
local events = redis.call('XRANGE', P .. 'events', since == '' and '-' or '(' .. since, '+', 'COUNT', int(EVENTS))
local rows, seen, arrays = {}, {}, {}

local function key_of(array, own)
  if own or not array then
    return own or ''
  end
  if arrays[array] == nil then
    local key = redis.pcall('HGET', job_key(array), 'concurrency')
    arrays[array] = type(key) == 'string' and key or ''
  end
  return arrays[array]
end

local function add(id)
  if seen[id] then
    return
  end
  seen[id] = true
  local row = redis.pcall('HMGET', job_key(id), 'status', 'queue', 'workflow', 'array', 'concurrency', 'batch',
    'holds')
  if row.err or not row[1] or row[6] then
    rows[#rows + 1] = { id, '', '', '', '', '' }
    return
  end
  local array = row[4] and string.match(row[4], '^%S+')
  local key, is_array = key_of(array, row[5]), row[7] and string.find(row[7], 'A', 1, true)
  rows[#rows + 1] = { id, row[1], row[2] or 'default', row[3] or '', is_array and '*' or array or '', key }
end

for at = 3, #ARGV do
  add(ARGV[at])
end
local last, more = since, #events == EVENTS and 1 or 0
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

-- How many jobs of a queue are held, by the lines of its keys; nil where that would be too much work.
local function held_in(queue)
  local names, held = redis.call('ZRANGE', queue_key(queue) .. ':keys', '0', int(KEYS_OF_QUEUE)), 0
  for _, name in ipairs(names) do
    held = held + redis.call('ZCOUNT', P .. 'concurrency:' .. name .. ':waiting:' .. queue, '(0', '+inf')
  end
  return #names <= KEYS_OF_QUEUE and held or nil
end

local COUNTS = { 'pending', 'scheduled', 'blocked', 'running', 'done', 'failed', 'cancelled', 'skipped', 'reserved', 'held', 'jobs',
  'size' }

local function counts_of(name)
  local fields = {}
  for i, value in ipairs(redis.call('HMGET', P .. name, unpack(COUNTS))) do
    fields[2 * i - 1], fields[2 * i] = COUNTS[i], value or '0'
  end
  fields[#fields + 1], fields[#fields + 2] = ':recounts', redis.call('HGET', KEYS[1], 'recounts') or '0'
  local queue = string.match(name, '^queue:(.+)$')
  if queue then
    for status in pairs(INDEXED) do
      fields[#fields + 1] = ':' .. status
      fields[#fields + 1] = int(redis.call('ZCARD', queue_key(queue) .. ':' .. status))
    end
    local held = held_in(queue)
    if held then
      fields[#fields + 1], fields[#fields + 2] = ':held', int(held)
    end
    fields[#fields + 1], fields[#fields + 2] = ':batches', int(redis.call('ZCARD', P .. 'batches'))
  end
  return fields
end

if hash ~= '' then
  return { 'COUNTED', last, more, counts_of(hash), unpack(rows) }
end
return { 'SURVEYED', last, more, unpack(rows) }
