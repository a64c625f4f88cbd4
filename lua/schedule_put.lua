-- schedule_put: create or change a schedule, if it is as the caller has seen it.
-- uses: schedules
--
-- ARGV[1]  name     of the schedule
-- ARGV[2]  seen     its version as the caller has seen it, '' if there was none
-- ARGV[3]  version  a fresh one; a repeat of this call has it again
-- ARGV[4]  next_at  its next occurrence, ms; '' for none, '=' for the one that it has: it may have fired since it was seen
-- ARGV[5]  last     its newest occurrence that was dealt with as the caller has seen it, ms; '' for none
-- ARGV[6..]  fields  of the hash: name, value
--
-- Returns {"SCHEDULED", created} (1 or 0), or {"OTHERWISE"} when it is not as seen

local name, seen, version, next_at, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key = SCHEDULES.key_of(name)

local present, born, newest, kept = unpack(redis.call('HMGET', key, 'version', 'born', 'last', 'next'))
if present == version then
  return { 'SCHEDULED', born == version and 1 or 0 } -- the reply to this very call was lost before
end
if (present or '') ~= seen then
  return { 'OTHERWISE' }
end
if next_at == '=' then
  next_at = kept or ''
elseif next_at ~= '' and newest and newest ~= last and tonumber(newest) >= tonumber(next_at) then
  return { 'OTHERWISE' } -- what would come next has come since
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
