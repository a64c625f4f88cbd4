-- tasks: cancel some of an array's tasks, or run them again.
-- uses: core ends edges arrays
--
-- ARGV[1]  id      of the array's job
-- ARGV[2]  what    cancel or retry
-- ARGV[3..]  places  indexes of the tasks, at most 100
--
-- Returns {"TASKS", word, …}, one of "CANCELLED", "CANCELLING", "RETRIED", "ENDED", "NOT_ENDED", "BEYOND" (there is no such
-- task) for each; {"NOT_STARTED", status}, {"UNKNOWN"} or {"NO_ARRAY"}

local id, what = ARGV[1], ARGV[2]
local EDGES = 200

local head = read(id)
if not visible(head) then
  return { 'UNKNOWN' }
end
if not is_array(head) then
  return { 'NO_ARRAY' }
end
local row = array_row(id)
if not row.started then
  return { 'NOT_STARTED', head.status }
end
local words = { 'TASKS' }
for at = 3, #ARGV do
  local place = tonumber(ARGV[at])
  if place >= row.size then
    words[#words + 1] = 'BEYOND'
  elseif what == 'cancel' then
    words[#words + 1] = cancel_task(head, row, place)
  else
    words[#words + 1] = retry_task(head, row, place)
  end
end
flush()
propagate(EDGES)
flush()
return words
