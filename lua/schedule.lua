-- schedule: create or change a schedule, if it is as the caller has seen it.
-- uses: core schedules
--
-- ARGV[1]  name     of the schedule
-- ARGV[2]  seen     its version as the caller has seen it, '' if there was none
-- ARGV[3]  version  a fresh one; a repeat of this call has it again
-- ARGV[4]  next_at  its next occurrence, ms; '' for none
-- ARGV[5..]  fields  of the hash: name, value
--
-- Returns {"SCHEDULED", created} (1 or 0), or {"OTHERWISE"} when it is not as seen

local name, seen, version, next_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = schedule_key(name)

local present, born = unpack(redis.call('HMGET', key, 'version', 'born'))
if present == version then
  return { 'SCHEDULED', born == version and 1 or 0 } -- the reply to this very call was lost before
end
if (present or '') ~= seen then
  return { 'OTHERWISE' }
end
redis.call('HDEL', key, 'job', 'workflow', 'paused', 'next', 'key')
for at = 5, #ARGV, 2 do
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
look_again(name)
return { 'SCHEDULED', present and 0 or 1 }
