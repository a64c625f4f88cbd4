-- doctor_rebuild: hold up all other calls that change something, and write what was found to be missing or wrong.
-- uses: together
--
-- `rebuilding` in meta is the token of the rebuild, `rebuilding_until` until when the others are held up. Should a rebuild die, they go on then: each
-- command that it has written was right by itself.
--
-- ARGV[1]  token     of the rebuild
-- ARGV[2]  lease_ms  how long the others are held up from now on, ms; 0: no longer
-- ARGV[3..]  commands  number of words, word, … (see lib/together)
--
-- Returns {"REBUILDING"}, or {"TOO_LATE", until_ms} when nothing was written: another rebuild goes on until then, or this one
-- has held up nobody any more, so that what it has found may not be true; until_ms 0: it was this one

local token, lease_ms = ARGV[1], tonumber(ARGV[2])

local holder, till = unpack(redis.call('HMGET', KEYS[1], 'rebuilding', 'rebuilding_until'))
till = tonumber(till or '') or 0
local held = till > NOW
if held and holder ~= token then
  return { 'TOO_LATE', till }
elseif ARGV[3] and not held then
  return { 'TOO_LATE', 0 }
end
TOGETHER.run(3)
if lease_ms > 0 then
  redis.call('HSET', KEYS[1], 'rebuilding', token, 'rebuilding_until', int(NOW + lease_ms))
else
  redis.call('HDEL', KEYS[1], 'rebuilding', 'rebuilding_until')
end
return { 'REBUILDING' }
