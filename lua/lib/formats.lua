-- formats: texts that Python and Lua share: for each format, the functions that write and read it.
--
-- workron/redis/formats.py has the twins, and tests/unit/test_formats.py has what one writes read by the other. What reads
-- returns nil for a text that is missing or damaged.

local FORMATS = {}

do

-- A reply of `pcall` that is no text is as one that is missing.
local function parts_of(text, pattern)
  if type(text) == 'string' then
    return string.match(text, pattern)
  end
end

-- job:<id>:heartbeat: who has the attempt, its fence, when it was last heard of, and for how long that renewed the lease (ms).
function FORMATS.heartbeat(worker, fence, at, lease_ms)
  return worker .. ' ' .. fence .. ' ' .. at .. ' ' .. lease_ms
end

function FORMATS.read_heartbeat(text)
  return parts_of(text, '^(%S+) (%d+) (%d+) (%d+)$')
end

-- Field `unique`: until when a job holds its key, what becomes of a job that finds it held, for how long (ms), and the key.
function FORMATS.read_unique(text)
  return parts_of(text, '^(%a+) (%a+) (%d+) (.+)$')
end

-- unique:<key>: the job that holds it, and its run.
function FORMATS.holder(id, run)
  return id .. ' ' .. run
end

function FORMATS.read_holder(text)
  return parts_of(text, '^(%S+) (%d+)$')
end

-- Field `retry`: delay (ms), factor, longest delay (ms) and jitter, `-` where the setting holds; the exit codes that are tried
-- again, and those that never are.
function FORMATS.read_retry(text)
  return parts_of(text, '^(%S+) (%S+) (%S+) ([^| ]+)|([^|]*)|([^|]*)$')
end

-- Field `depends_on`: the next edge from a position on: parent, whether it is matching, and the position behind it.
function FORMATS.next_edge(text, from)
  local parent, rest, behind = string.match(text or '', '^%s*([^:%s]+)(%S*)()', from)
  return parent, parent and string.sub(rest, -1) == '=', behind
end

-- A member of `due` that is no scheduled job: `deadline` and `expires` of a job, and `refill` of a concurrency key.
function FORMATS.timer(kind, name)
  return kind .. ' ' .. name
end

function FORMATS.read_timer(text)
  return parts_of(text, '^(%a+) (.+)$')
end

-- job:<id>:children: when the child is satisfied, and its id.
function FORMATS.child(when, id)
  return when .. ':' .. id
end

function FORMATS.read_child(text)
  return parts_of(text, '^(%a+):(.+)$')
end

-- Attempts: id and fence of each; more of them, such as what a claim has behind these, is left out. To read is to go over them.
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

-- Field `outputs`: of each attempt whose output is stored its fence, and how much it has written (bytes).
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

-- idempotency:<key>: the submission that it stands for: fingerprint, first id, number of jobs, and workflow, '' for none.
function FORMATS.entry(fingerprint, first, size, workflow)
  return fingerprint .. ' ' .. first .. ' ' .. size .. ' ' .. (workflow == '' and '-' or workflow)
end

function FORMATS.read_entry(text)
  local fingerprint, first, size, workflow = parts_of(text, '^(%S+) (%S+) (%d+) (%S+)$')
  return fingerprint, first, size, workflow ~= '-' and workflow or ''
end

-- An occurrence as a fingerprint: version of its schedule, kind, time (ms), the next time, and key, `-` for none: see schedules.
function FORMATS.read_occurrence(text)
  return parts_of(text, '^(%S+) (%S+) (%d+) (%S+) (%S+)$')
end

-- schedule:<name>:runs: the time of the first of some occurrences that went alike, what became of them, how many, when that was
-- noted, job and workflow, `-` for none, and a text.
function FORMATS.run(at, outcome, number, noted_at, job, workflow, text)
  return table.concat({ at, outcome, number, noted_at, job, workflow, text }, ' ')
end

function FORMATS.read_run(line)
  return parts_of(line, '^(%d+) (%a+) (%d+) (%d+) (%S+) (%S+) (.*)$')
end

-- Room for jobs in queues: how many in each; batch:<id>:reserved has negative numbers, too.
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

-- batch:<id>:ids: a line per run of jobs that are alike: their ids, the status that they surely have, '' if that has to be looked
-- up, priority and queue.
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
