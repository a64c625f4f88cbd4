-- bulk_abort: end a bulk action where it is. What it has done stays done.
--
-- ARGV[1]  id       of the action
-- ARGV[2]  keep_ms  how long it is shown, ms
--
-- Returns {"HALTED"}, {"OVER", state} when it has ended before, or {"UNKNOWN"}

local id, keep_ms = ARGV[1], ARGV[2]
local key = P .. 'action:' .. id

local state = redis.call('HGET', key, 'state')
if not state then
  return { 'UNKNOWN' }
end
if state ~= 'running' then
  return { 'OVER', state }
end
redis.call('HSET', key, 'state', 'aborted', 'finished_at', NOW_TEXT)
redis.call('UNLINK', key .. ':sources')
redis.call('PEXPIRE', key, keep_ms)
redis.call('ZREM', P .. 'actions:open', id)
return { 'HALTED' }
