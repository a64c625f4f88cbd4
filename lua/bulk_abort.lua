-- bulk_abort: end a bulk action before it is complete. What it has done stays done.
--
-- ARGV[1]  id       of the action
-- ARGV[2]  keep_ms  how long it stays visible, ms
--
-- Returns {"HALTED"}, {"OVER", state} if it had ended before, or {"UNKNOWN"}

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
