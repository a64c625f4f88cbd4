-- schedule_advance: advance a schedule without storing jobs: an occurrence waits, was missed or refused, or is put off.
-- The script that stores the jobs of an occurrence advances its schedule itself (see lib/schedules).
-- uses: schedules
--
-- ARGV[1]  name       of the schedule
-- ARGV[2]  version    that the caller has seen
-- ARGV[3]  kind       `next` or `queued`: which occurrence is meant
-- ARGV[4]  at         its time as the caller has seen it, ms
-- ARGV[5]  last       time of the newest missed occurrence, ms; otherwise the same as `at`
-- ARGV[6]  following  time of the occurrence after that, ms; `-` for none
-- ARGV[7]  what       `hold`: if it must wait for an earlier one; `missed`; `refused`; or `later`
-- ARGV[8]  number     number of missed occurrences, or ms until the next look
-- ARGV[9]  text       reason of a refusal, otherwise ''
--
-- Returns {"MOVED"}, or {"OTHERWISE"} if the schedule is not, or no longer, as the caller has seen it

local name, version, kind, at, last, following = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local what, number, text = ARGV[7], ARGV[8], ARGV[9]

local function hold(row)
  if not SCHEDULES.must_wait(row, kind) then
    return false
  end
  if kind == 'next' then
    SCHEDULES.move_on(name, kind, last, following)
    if row.overlap == 'queue' and not row.queued then
      redis.call('HSET', SCHEDULES.key_of(name), 'queued', at)
    else
      SCHEDULES.note_run(name, at, 'skipped', '1', '-', '-', '')
    end
  end
  return true
end

local row = SCHEDULES.read(name)
if not row and redis.call('EXISTS', SCHEDULES.key_of(name)) == 0 then
  redis.call('ZREM', P .. 'schedules:due', name)
end
if not SCHEDULES.is_due(row, { version = version, kind = kind, at = at }) then
  return { 'OTHERWISE' }
end
if what == 'later' then
  redis.call('ZADD', P .. 'schedules:due', int(NOW + tonumber(number)), name)
  return { 'MOVED' }
end
if what == 'hold' then
  if not hold(row) then
    return { 'OTHERWISE' }
  end
else
  SCHEDULES.move_on(name, kind, last, following)
  SCHEDULES.note_run(name, at, what, number, '-', '-', text)
end
SCHEDULES.look_again(name)
return { 'MOVED' }
