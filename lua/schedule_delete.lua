-- schedule_delete: delete a schedule. Jobs that it has fired stay.
-- uses: schedules
--
-- ARGV[1]  name  of the schedule
--
-- Returns {"UNSCHEDULED"} or {"UNKNOWN"}

local name = ARGV[1]
local key = SCHEDULES.key_of(name)

local there = redis.call('ZREM', P .. 'schedules', name) + redis.call('DEL', key, key .. ':runs')
redis.call('ZREM', P .. 'schedules:due', name)
return { there > 0 and 'UNSCHEDULED' or 'UNKNOWN' }
