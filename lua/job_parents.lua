-- job_parents: read how the dependencies of a job ended, with their results.
-- uses: formats arrays
--
-- ARGV[1]  id     of the job
-- ARGV[2]  from   position in its list of dependencies: 1, then `next` of the last call
-- ARGV[3]  limit  most dependencies to read, 1..200
-- ARGV[4]  room   most bytes of results to read; a parent whose result does not fit is read without it
--
-- A call ends after a megabyte of results. The next call reads the rest.
--
-- Returns {"PARENTS", next, {parent, status, name, result, left_out}, …}, '' for a value that a parent lacks; next:
-- where to continue, 0 at the end; left_out: 1 if there was no room for the result; or {"UNKNOWN"}

local A_CALL = 1024 * 1024 -- bytes of results in one call
local id, from, limit, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local edges = redis.call('HGET', job_key(id), 'depends_on')
if not edges and redis.call('EXISTS', job_key(id)) == 0 then
  return { 'UNKNOWN' }
end
local array, place = unpack(redis.call('HMGET', job_key(id), 'array', 'index'))
if array then
  edges = redis.call('HGET', job_key(array), 'depends_on')
end

-- Return the job that an edge names. For a task that follows another array, it is the task with the same index there.
local function parent_of(parent, matching)
  if place and matching then
    local followed = read(parent)
    parent = followed and ARRAYS.task_id(followed, tonumber(place)) or parent
  end
  return parent
end

local function look_at(parent)
  local key = job_key(parent)
  local row = redis.pcall('HMGET', key, 'status', 'name')
  if row.err then
    return { parent, '', '', '', 0 }
  end
  local size = redis.call('HSTRLEN', key, 'result')
  local fits = size <= room
  room = fits and room - size or room
  local result = size > 0 and fits and redis.call('HGET', key, 'result') or ''
  return { parent, row[1] or '', row[2] or '', result, fits and 0 or 1 }
end

local answer, before = { 'PARENTS', 0 }, room
for _ = 1, limit do
  if before - room >= A_CALL then
    break
  end
  local parent, matching, behind = FORMATS.next_edge(edges, from)
  if not parent then
    return answer
  end
  answer[#answer + 1] = look_at(parent_of(parent, matching))
  from = behind
end
answer[2] = from
return answer
