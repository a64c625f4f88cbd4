-- key_create: store an API key under a name that no other key has. Redis gets only the hash of the secret.
--
-- ARGV[1]  id      of the key; a repeat of this call has the same id
-- ARGV[2]  name    for people
-- ARGV[3]  ttl_ms  how long the key is valid, ms; '' for ever
-- ARGV[4]  most    most keys that may exist
-- ARGV[5]  kept_ms  how long an expired key is still listed, ms
-- ARGV[6..]  fields  name, value of each field of its hash
--
-- Returns {"GRANTED"}, {"TAKEN"} if an unexpired key has this name, or {"MANY"} if `most` keys exist

local id, name, ttl_ms, most, kept_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key, all = P .. 'apikey:' .. id, P .. 'apikeys'

if redis.call('EXISTS', key) == 1 then
  return { 'GRANTED' } -- a repeat: the first reply was lost
end
redis.call('ZREMRANGEBYSCORE', all, '-inf', NOW_TEXT)
local others = redis.call('ZRANGE', all, '0', '-1') -- bound: `most`, which every call enforces
if #others >= tonumber(most) then
  return { 'MANY' }
end
for _, other in ipairs(others) do
  local about = redis.pcall('HMGET', P .. 'apikey:' .. other, 'name', 'expires_at')
  if about[1] == name and not (about[2] and tonumber(about[2]) <= NOW) then
    return { 'TAKEN' }
  end
end
for at = 6, #ARGV, 2 do
  redis.call('HSET', key, ARGV[at], ARGV[at + 1])
end
redis.call('HSET', key, 'name', name, 'created_at', NOW_TEXT)
if ttl_ms == '' then
  redis.call('ZADD', all, '+inf', id)
else
  local expires_at = NOW + tonumber(ttl_ms)
  local forgotten_at = int(expires_at + tonumber(kept_ms))
  redis.call('HSET', key, 'expires_at', int(expires_at))
  redis.call('PEXPIREAT', key, forgotten_at)
  redis.call('ZADD', all, forgotten_at, id)
end
return { 'GRANTED' }
