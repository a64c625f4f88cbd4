-- formats: texts that Python and Lua share. Each has a function that writes it and one that reads it, here if needed.
--
-- workron/redis/formats.py has the twins. tests/unit/test_formats.py reads with one language what the other one writes.
-- A reader returns nil for a missing or damaged text.

local FORMATS = {}

do

-- A reply of `pcall` that is not a text counts as missing.
local function parts_of(text, pattern)
  if type(text) == 'string' then
    return string.match(text, pattern)
  end
end

-- job:<id>:heartbeat: the attempt's worker and fence, the time of its last
-- heartbeat, and the lease that it renewed (ms).
function FORMATS.heartbeat(worker, fence, at, lease_ms)
  return worker .. ' ' .. fence .. ' ' .. at .. ' ' .. lease_ms
end

function FORMATS.read_heartbeat(text)
  return parts_of(text, '^(%S+) (%d+) (%d+) (%d+)$')
end

-- Field `unique`: until when a job holds its key, the action on a conflict, the TTL (ms), and the key.
function FORMATS.read_unique(text)
  return parts_of(text, '^(%a+) (%a+) (%d+) (.+)$')
end

-- unique:<key>: the job that holds the key, and its run.
function FORMATS.holder(id, run)
  return id .. ' ' .. run
end

function FORMATS.read_holder(text)
  return parts_of(text, '^(%S+) (%d+)$')
end

-- Field `retry`: delay (ms), factor, longest delay (ms) and jitter, each `-` to use the setting; the exit codes that
-- are retried, and the exit codes that never are.
function FORMATS.read_retry(text)
  return parts_of(text, '^(%S+) (%S+) (%S+) ([^| ]+)|([^|]*)|([^|]*)$')
end

-- Field `depends_on`, the next edge from a position on: parent, whether it is matching, and the next position.
function FORMATS.next_edge(text, from)
  local parent, rest, behind = string.match(text or '', '^%s*([^:%s]+)(%S*)()', from)
  return parent, parent and string.sub(rest, -1) == '=', behind
end

-- A member of `due` that is not a scheduled job: `deadline` and `expires` of a job, `refill` of a concurrency key.
function FORMATS.timer(kind, name)
  return kind .. ' ' .. name
end

function FORMATS.read_timer(text)
  return parts_of(text, '^(%a+) (.+)$')
end

-- job:<id>:children: the condition of the child's edge, and the child's id.
function FORMATS.child(when, id)
  return when .. ':' .. id
end

function FORMATS.read_child(text)
  return parts_of(text, '^(%a+):(.+)$')
end

-- Attempts: id and fence of each; further items, which a claim has, are left out. read_attempts returns an iterator.
function FORMATS.attempts(attempts)
  local parts = {}
  for i, attempt in ipairs(attempts) do
    parts[i] = attempt[1] .. ' ' .. attempt[2]
  end
  return table.concat(parts, ' ')
end

function FORMATS.read_attempts(text)
  return string.gmatch(text, '(%S+) (%S+)')
end

-- Field `outputs`: the fence of each attempt with stored output, and how many bytes the attempt has written.
function FORMATS.outputs(attempts)
  local parts = {}
  for i, attempt in ipairs(attempts) do
    parts[i] = attempt.fence .. ':' .. attempt.total
  end
  return table.concat(parts, ' ')
end

function FORMATS.read_outputs(text)
  local attempts = {}
  for fence, total in string.gmatch(text or '', '(%d+):(%d+)') do -- bound: KEPT, see outputs
    attempts[#attempts + 1] = { fence = fence, total = total }
  end
  return attempts
end

-- idempotency:<key>: fingerprint of the submission, its first id, number of jobs, and workflow ('' for none).
function FORMATS.entry(fingerprint, first, size, workflow)
  return fingerprint .. ' ' .. first .. ' ' .. size .. ' ' .. (workflow == '' and '-' or workflow)
end

function FORMATS.read_entry(text)
  local fingerprint, first, size, workflow = parts_of(text, '^(%S+) (%S+) (%d+) (%S+)$')
  return fingerprint, first, size, workflow ~= '-' and workflow or ''
end

-- An occurrence as a fingerprint: the schedule's version, kind, time (ms), next
-- time, key (`-` for none): see schedules.
function FORMATS.read_occurrence(text)
  return parts_of(text, '^(%S+) (%S+) (%d+) (%S+) (%S+)$')
end

-- schedule:<name>:runs: a line for successive occurrences with the same outcome: time of the first, outcome, how many,
-- when that was recorded, job and workflow (`-` for none), and a text.
function FORMATS.run(at, outcome, number, noted_at, job, workflow, text)
  return table.concat({ at, outcome, number, noted_at, job, workflow, text }, ' ')
end

function FORMATS.read_run(line)
  return parts_of(line, '^(%d+) (%a+) (%d+) (%d+) (%S+) (%S+) (.*)$')
end

-- Reserved room: the number of jobs per queue. batch:<id>:reserved also has negative numbers.
function FORMATS.room(queue, number)
  return queue .. ' ' .. number
end

function FORMATS.read_rooms(text)
  local rooms = {}
  for queue, number in string.gmatch(text or '', '(%S+) (%-?%d+)') do -- bound: MAX_QUEUES of a call
    rooms[#rooms + 1] = { queue = queue, number = tonumber(number) }
  end
  return rooms
end

-- batch:<id>:ids: a line per run of similar jobs: their ids, their status if it is certain ('' if
-- it has to be read), priority and queue.
function FORMATS.alike(ids, status, priority, queue)
  return table.concat(ids, ' ') .. '|' .. status .. ' ' .. priority .. ' ' .. queue
end

function FORMATS.read_alike(text)
  local runs = {}
  for list, status, priority, queue in string.gmatch(text or '', '([^|\n]*)|(%a*) (%d+) ([^\n]*)') do -- bound: a chunk's jobs
    local ids = {}
    for id in string.gmatch(list, '%S+') do
      ids[#ids + 1] = id
    end
    runs[#runs + 1] = { ids = ids, status = status, priority = priority, queue = queue }
  end
  return runs
end

-- A message in `cancels`: stop this attempt.
function FORMATS.stop(worker, id, fence)
  return worker .. ' ' .. id .. ' ' .. fence
end

end
