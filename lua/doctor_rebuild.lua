-- doctor_rebuild: lock out all other scripts that change jobs, and write what the doctor found to be missing or wrong.
-- uses: together
--
-- `rebuilding` in meta is the token of the rebuild, and `rebuilding_until` is the end of that lock. If a rebuild dies,
-- the other scripts continue then. Each command that it has written is right by itself.
--
-- ARGV[1]  token     of the rebuild
-- ARGV[2]  lease_ms  how long the lock lasts from now on, ms; 0 ends it
-- ARGV[3]  step      number of the call: a call that was repeated, as its reply was lost, writes only once
-- ARGV[4..]  commands  number of words, word, … (see lib/together)
--
-- Returns {"REBUILDING"}, or {"TOO_LATE", until_ms} if nothing was written: another rebuild has the lock until then.
-- until_ms 0: the lock of this rebuild has ended, so what it found may be outdated

local token, lease_ms, step = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local holder, till, written = unpack(redis.call('HMGET', KEYS[1], 'rebuilding', 'rebuilding_until', 'rebuilding_step'))
till = tonumber(till or '') or 0
local held = till > NOW
if held and holder ~= token then
  return { 'TOO_LATE', till }
elseif ARGV[4] and not held then
  return { 'TOO_LATE', 0 }
end
if not (held and written == step) then
  TOGETHER.run(4)
end
if lease_ms > 0 then
  redis.call('HSET', KEYS[1], 'rebuilding', token, 'rebuilding_until', int(NOW + lease_ms), 'rebuilding_step', step)
else
  redis.call('HDEL', KEYS[1], 'rebuilding', 'rebuilding_until', 'rebuilding_step')
end
return { 'REBUILDING' }
