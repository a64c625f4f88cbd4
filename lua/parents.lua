-- parents: read how the jobs ended that one depends on, with their results.
-- uses: core
--
-- ARGV[1]  id     of the job
-- ARGV[2]  skip   number of its first dependencies to pass over
-- ARGV[3]  limit  most dependencies to read, 1..200
-- ARGV[4]  room   bytes of results to read at most; of those beyond only status and name are
--
-- Returns {"PARENTS", more, {parent, status, name, result, left_out}, …}, '' for what a parent has not; more: 1 when
-- there are others behind; left_out: 1 when there was no room for its result; or {"UNKNOWN"}

local id, skip, limit, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local edges = redis.call('HGET', job_key(id), 'depends_on')
if not edges and redis.call('EXISTS', job_key(id)) == 0 then
  return { 'UNKNOWN' }
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

local answer, at, more = { 'PARENTS', 0 }, 0, 0
for edge in string.gmatch(edges or '', '%S+') do
  at = at + 1
  if at > skip + limit then
    more = 1
    break
  elseif at > skip then
    answer[#answer + 1] = look_at(string.match(edge, '^[^:]+'))
  end
end
answer[2] = more
return answer
