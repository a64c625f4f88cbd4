-- key_revoke: delete an API key.
--
-- ARGV[1]  id  of the key
--
-- Returns {"REVOKED"} or {"UNKNOWN"}

local id = ARGV[1]
local there = redis.call('ZREM', P .. 'apikeys', id) + redis.call('DEL', P .. 'apikey:' .. id)
return { there > 0 and 'REVOKED' or 'UNKNOWN' }
