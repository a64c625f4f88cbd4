-- array_values: store the next values of an array. Its submission asked for them, and will be repeated.
--
-- ARGV[1]  id       of the job
-- ARGV[2]  offset   number of values that were stored before
-- ARGV[3]  ttl_ms   how long they are kept until the job is stored, ms
-- ARGV[4..]  values  value of a task
--
-- Returns {"KEPT"}, also for a repeat, or {"FULL"}

local id, offset, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local key = P .. 'array:' .. id .. ':values'

if redis.call('EXISTS', job_key(id)) == 1 then
  return { 'KEPT' }
end
if redis.call('HGET', KEYS[1], 'full') then
  return { 'FULL' }
end
if redis.call('LLEN', key) == offset then
  for at = 4, #ARGV do
    redis.call('RPUSH', key, ARGV[at])
  end
  redis.call('PEXPIRE', key, ttl_ms)
end
return { 'KEPT' }
