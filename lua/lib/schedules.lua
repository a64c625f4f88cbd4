-- schedules: fire each occurrence once, at its time.
-- uses: formats
--
-- The script that stores the jobs of an occurrence also advances the schedule. It does neither if the schedule
-- has changed since the caller read it.
--
-- A submission for a schedule has the idempotency key `schedule:<name>`. Its fingerprint is the expected state of the
-- schedule: `<version> <kind> <at> <following> <key>`. Kind `next`: `at` is the next occurrence, `following` the one
-- after it (ms, `-` for none). Kind `queued`: `at` is the occurrence that waits for the end of an earlier one. Kind
-- `run`: a user starts it by hand, and `key` (`-` for none) identifies a repeat.

local SCHEDULES = {}

do

local RUNS = 20
local ACTIVE = 20 -- most unfinished runs that are recorded
local LOOK_MS, LOOK_MOST_MS = 1000, 5000 -- interval at which a queued occurrence is checked, least and most
local RUN_KEY_MS = '86400000'
-- successive occurrences with one of these outcomes share a line
local LUMPED = { skipped = true, missed = true, refused = true }

function SCHEDULES.key_of(name)
  return P .. 'schedule:' .. name
end

-- Return the name of the schedule for an idempotency key, nil for any other key.
function SCHEDULES.name_in(key)
  return string.match(key, '^schedule:(.+)$')
end

local function parse_occurrence(fingerprint)
  local version, kind, at, following, key = FORMATS.read_occurrence(fingerprint)
  return { version = version, kind = kind, at = at, following = following, key = key }
end

-- Read the fields that decide whether a schedule may advance; nil if there is none, or its key is damaged.
function SCHEDULES.read(name)
  local row = redis.pcall('HMGET', SCHEDULES.key_of(name), 'version', 'next', 'queued', 'overlap', 'paused', 'active')
  if not row[1] then
    return nil
  end
  return { version = row[1], next = row[2], queued = row[3], overlap = row[4], paused = row[5], active = row[6] or '' }
end

-- Whether a job (its id) or workflow (`+` and its id) has not ended.
local function is_unfinished(run)
  local workflow = string.match(run, '^%+(.+)$')
  if not workflow then
    local status = redis.pcall('HGET', job_key(run), 'status')
    return type(status) == 'string' and not TERMINAL[status]
  end
  local row = redis.pcall('HMGET', P .. 'workflow:' .. workflow, 'size', 'done', 'failed', 'cancelled', 'skipped')
  if row.err or not row[1] then
    return false
  end
  local left = tonumber(row[1])
  for i = 2, 5 do
    left = left - tonumber(row[i] or 0)
  end
  return left > 0
end

local function unfinished_runs(active)
  local found = {}
  for run in string.gmatch(active, '%S+') do
    if is_unfinished(run) then
      found[#found + 1] = run
    end
  end
  return found
end

-- Whether an occurrence has to wait for an earlier one, by the schedule's `overlap`. A queued occurrence goes first.
function SCHEDULES.must_wait(row, kind)
  if row.overlap == 'allow' or kind == 'run' then
    return false
  end
  return kind == 'next' and row.queued and true or #unfinished_runs(row.active) > 0
end

function SCHEDULES.is_due(row, seen)
  return row and row.version == seen.version and not row.paused and row[seen.kind] == seen.at and tonumber(seen.at) <= NOW
end

-- Check a submission for a schedule: nil if it may be stored, else {"REPEATED", first, size, workflow} or {"MISMATCH"}.
function SCHEDULES.judge(name, fingerprint)
  local seen = parse_occurrence(fingerprint)
  local row = SCHEDULES.read(name)
  if seen.kind == 'run' then
    local before = seen.key ~= '-' and redis.call('GET', P .. 'idempotency:schedule:' .. name .. ':' .. seen.key)
    if before then
      local _, first, size, workflow = FORMATS.read_entry(before)
      return { 'REPEATED', first, size, workflow }
    end
    return not (row and row.version == seen.version) and { 'MISMATCH' } or nil
  end
  if not SCHEDULES.is_due(row, seen) or SCHEDULES.must_wait(row, seen.kind) then
    return { 'MISMATCH' }
  end
  return nil
end

-- Set when the schedule is visited next.
function SCHEDULES.look_again(name)
  local row = SCHEDULES.read(name)
  local at = row and not row.paused and row.next and tonumber(row.next)
  if row and not row.paused and row.queued then
    local waits = math.max(LOOK_MS, math.min(LOOK_MOST_MS, math.floor((NOW - tonumber(row.queued)) / 20)))
    at = math.min(at or NOW + waits, NOW + waits)
  end
  if at then
    redis.call('ZADD', P .. 'schedules:due', int(at), name)
  else
    redis.call('ZREM', P .. 'schedules:due', name)
  end
end

-- Record the outcome of occurrences. Only people read it: if a key is damaged, the schedule continues without it.
function SCHEDULES.note_run(name, at, outcome, number, job, workflow, text)
  local key = SCHEDULES.key_of(name)
  redis.pcall('HINCRBY', key, outcome, number)
  local first, before, some = FORMATS.read_run(LUMPED[outcome] and redis.pcall('LINDEX', key .. ':runs', '0'))
  if before == outcome then
    at, number = first, int(tonumber(some) + tonumber(number))
    redis.pcall('LPOP', key .. ':runs')
  end
  local line = FORMATS.run(at, outcome, number, NOW_TEXT, job, workflow, text)
  redis.pcall('LPUSH', key .. ':runs', line)
  redis.pcall('LTRIM', key .. ':runs', '0', int(RUNS - 1))
end

-- Remove the occurrence from the schedule. `following` is the next one.
function SCHEDULES.move_on(name, kind, last, following)
  local key = SCHEDULES.key_of(name)
  if kind == 'queued' then
    redis.call('HDEL', key, 'queued')
  elseif kind == 'next' then
    redis.call('HSET', key, 'last', last)
    if following == '-' then
      redis.call('HDEL', key, 'next')
    else
      redis.call('HSET', key, 'next', following)
    end
  end
end

local function note_start(name, seen, first, workflow)
  local active = unfinished_runs(SCHEDULES.read(name).active)
  active[#active + 1] = workflow ~= '' and '+' .. workflow or first
  redis.call('HSET', SCHEDULES.key_of(name), 'active', table.concat(active, ' ', math.max(1, #active - ACTIVE + 1)))
  local outcome = seen.kind == 'run' and 'manual' or 'fired'
  SCHEDULES.note_run(name, seen.at, outcome, '1', workflow ~= '' and '-' or first, workflow ~= '' and workflow or '-', '')
end

-- Record that the jobs of an occurrence are stored. With `returned` they are not: job `first` holds the unique key.
function SCHEDULES.record(name, fingerprint, first, size, workflow, returned)
  local seen = parse_occurrence(fingerprint)
  if returned then
    SCHEDULES.note_run(name, seen.at, 'skipped', '1', '-', '-', 'job ' .. first .. ' holds its unique key')
  else
    note_start(name, seen, first, workflow)
  end
  SCHEDULES.move_on(name, seen.kind, seen.at, seen.following)
  if seen.key ~= '-' then
    local entry = FORMATS.entry('-', first, size, workflow)
    redis.call('SET', P .. 'idempotency:schedule:' .. name .. ':' .. seen.key, entry, 'PX', RUN_KEY_MS)
  end
  SCHEDULES.look_again(name)
end

end
