-- array_tasks: cancel or retry some tasks of an array.
-- uses: unique edges arrays tasks
--
-- ARGV[1]  id      of the array's job
-- ARGV[2]  what    cancel or retry
-- ARGV[3..]  places  index of a task
--
-- Returns {"TASKS", word, …} with a word per task: cancelled, cancelling, retried, ended, not_ended or beyond (there is
-- no such task); {"NOT_STARTED", status}; {"HELD", holder, key} (see lib/unique); {"DROPPED", place}: this task ended
-- with its array before it was made, and only the whole array can be retried; or {"UNKNOWN"}, also for a job that is
-- not an array

local id, what = ARGV[1], ARGV[2]
local MOST_EDGES = 200

local head = read(id)
if not visible(head) or not ARRAYS.is_array(head) then
  return { 'UNKNOWN' }
end
local row = ARRAYS.row(id)
if redis.call('HEXISTS', ARRAYS.key(id), 'deleted') == 1 then
  return { 'UNKNOWN' }
end
if not row.started then
  return { 'NOT_STARTED', head.status }
end
local dropped = tonumber(row.dropped_from or nil)
for at = 3, dropped and what == 'retry' and #ARGV or 0 do
  local place = tonumber(ARGV[at])
  if (row.follows or place >= dropped) and redis.call('EXISTS', job_key(ARRAYS.task_id(head, place))) == 0 then
    return { 'DROPPED', place }
  end
end
local holder, key = UNIQUE.kept_off_by(head)
if what == 'retry' and TERMINAL[head.status] and holder then
  return { 'HELD', holder, key }
end
local words = { 'TASKS' }
for at = 3, #ARGV do
  local place = tonumber(ARGV[at])
  if place >= row.size then
    words[#words + 1] = 'beyond'
  elseif what == 'cancel' then
    words[#words + 1] = TASKS.cancel(head, row, place)
  else
    words[#words + 1] = TASKS.retry(head, row, place)
  end
end
flush()
EDGES.propagate(MOST_EDGES)
flush()
return words
