-- bulk_create: store a bulk action, which reapers then perform.
--
-- `action:<id>:sources` lists the indexes that the action goes through, in order, by name.
--
-- ARGV[1]  id           of the action
-- ARGV[2]  fingerprint  of the request body
-- ARGV[3]  statuses     statuses that match, separated by spaces
-- ARGV[4]  queue        only jobs of this queue, '' for all
-- ARGV[5]  workflow     only jobs of this workflow, '' for all
-- ARGV[6..]  fields     name, value of each other field of the action's hash
--
-- Returns {"ORDERED"}, {"REPEATED"} if it was stored before, or {"MISMATCH"} if its id belongs to another action

local id, fingerprint, statuses, queue, workflow = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key, all = P .. 'action:' .. id, P .. 'actions'
local LOOKED_AFTER = 20 -- oldest entries checked in one call; an entry whose action has expired leaves the list

local before = redis.call('HGET', key, 'fingerprint')
if before then
  return { before == fingerprint and 'REPEATED' or 'MISMATCH' }
end

local sources, total = {}, 0

local function add(source, size)
  sources[#sources + 1] = source
  total = total + size
end

-- Add the indexes of the statuses, of one queue or of all, unless they are empty.
local function add_indexes()
  local of = queue ~= '' and 'queue:' .. queue or 'jobs'
  for status in string.gmatch(statuses, '%S+') do
    local size = redis.call('ZCARD', P .. of .. ':' .. status)
    if size > 0 then
      add(of .. ':' .. status, size)
    end
  end
end

local function are_indexed()
  for status in string.gmatch(statuses, '%S+') do
    if not INDEXED[status] then
      return false
    end
  end
  return true
end

local upto = ''
if workflow ~= '' then
  upto = int(redis.call('LLEN', P .. 'workflow:' .. workflow .. ':jobs'))
  add('workflow:' .. workflow .. ':jobs', tonumber(upto))
elseif are_indexed() then
  add_indexes()
else
  local name = statuses == 'running' and 'leases' or statuses == 'scheduled' and 'due' or 'jobs'
  local last = redis.call('ZRANGE', P .. name, '-1', '-1', 'WITHSCORES')
  upto = name == 'jobs' and last[1] or name == 'due' and last[2] or ''
  if #last > 0 then
    add(name, redis.call('ZCARD', P .. name))
  end
end
redis.call('HSET', key, 'fingerprint', fingerprint, 'state', 'running', 'created_at', NOW_TEXT, 'statuses', statuses,
  'queue', queue, 'workflow', workflow, 'upto', upto, 'total', int(total))
for at = 6, #ARGV, 2 do
  redis.call('HSET', key, ARGV[at], ARGV[at + 1])
end
for _, source in ipairs(sources) do
  redis.call('RPUSH', key .. ':sources', source)
end
for _, old in ipairs(redis.call('ZRANGE', all, '0', int(LOOKED_AFTER - 1))) do
  if redis.call('EXISTS', P .. 'action:' .. old) == 0 then
    redis.call('ZREM', all, old)
  end
end
redis.call('ZADD', all, NOW_TEXT, id)
redis.call('ZADD', all .. ':open', NOW_TEXT, id)
return { 'ORDERED' }
