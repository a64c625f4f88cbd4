-- schedule_put: create or change a schedule, if it is as the caller has seen it.
-- uses: schedules
--
-- ARGV[1]  name     of the schedule
-- ARGV[2]  seen     version that the caller has seen, '' if there was none
-- ARGV[3]  version  a new one; a repeat of this call has the same version
-- ARGV[4]  next_at  time of its next occurrence, ms; '' for none; '=' keeps the stored one: it may have fired
-- ARGV[5]  last     time of its newest handled occurrence as the caller has seen it, ms; '' for none
-- ARGV[6..]  fields  name, value of each field of its hash
--
-- Returns {"SCHEDULED", created} (1 or 0), or {"OTHERWISE"} if it is not as the caller has seen it

local name, seen, version, next_at, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key = SCHEDULES.key_of(name)

local present, born, newest, kept = unpack(redis.call('HMGET', key, 'version', 'born', 'last', 'next'))
if present == version then
  return { 'SCHEDULED', born == version and 1 or 0 } -- a repeat: the first reply was lost
end
if (present or '') ~= seen then
  return { 'OTHERWISE' }
end
if next_at == '=' then
  next_at = kept or ''
elseif next_at ~= '' and newest and newest ~= last and tonumber(newest) >= tonumber(next_at) then
  return { 'OTHERWISE' } -- the next occurrence has been handled meanwhile
end
redis.call('HDEL', key, 'job', 'workflow', 'paused', 'next', 'key')
for at = 6, #ARGV, 2 do
  redis.call('HSET', key, ARGV[at], ARGV[at + 1])
end
redis.call('HSET', key, 'version', version, 'updated_at', NOW_TEXT)
if next_at ~= '' then
  redis.call('HSET', key, 'next', next_at)
end
if not present then
  redis.call('HSET', key, 'born', version, 'created_at', NOW_TEXT)
  redis.call('ZADD', P .. 'schedules', '0', name)
end
SCHEDULES.look_again(name)
return { 'SCHEDULED', present and 0 or 1 }
