-- conflicts: decide about a submission whose unique keys other jobs hold. It reads
-- everything before anything is written.
-- uses: unique
--
-- returned:<first id> (HASH, with a TTL): job of a submission that was not stored → the job that held its key.

local CONFLICTS = {}

do

local RETURNED_MS, RETURNED_UNKEYED_MS = 86400000, 600000 -- TTL with an Idempotency-Key, and without

local function waits(job)
  return job.status == 'pending' or job.status == 'scheduled' or job.status == 'blocked'
end

-- Decide what to do with each job. `here` is the batch for which the jobs are staged, '' for none. `is_replaceable`
-- returns whether this call may replace a waiting job.
--
-- Returns a plan. `kept`: the jobs to store; `returned`: id → the job that holds its key instead; `replaced`: the jobs
-- to replace, each with its replacement, in the order of the submission; `keys`: key → the job that takes it. If the
-- submission is refused, returns nil and {"HELD", id of the holder, key}.
function CONFLICTS.meet_holders(jobs, workflow, here, is_replaceable)
  local plan = { kept = {}, returned = {}, replaced = {}, keys = {} }
  for _, job in ipairs(jobs) do
    local unique = job.unique and UNIQUE.parse(job.unique)
    local own = unique and plan.keys[unique.key]
    local other = own or unique and UNIQUE.holder_of(unique.key)
    local kept = true
    if other and unique.on_conflict == 'return' and workflow == '' and (own or other.batch == here or visible(other)) then
      plan.returned[job.id], kept = other.id, false
    elseif other and unique.on_conflict == 'replace' and (own or waits(other) and visible(other))
      and is_replaceable(other) then
      plan.replaced[#plan.replaced + 1] = { id = other.id, by = job.id }
    elseif other then
      return nil, { 'HELD', other.id, unique.name }
    end
    if kept then
      plan.kept[#plan.kept + 1] = job
      if unique then
        job.lock = unique
        plan.keys[unique.key] = job
      end
    end
  end
  return plan
end

-- Record which jobs were not stored, for a repeat of the call. Returns whether there are any.
function CONFLICTS.note_returned(plan, first, idempotency)
  local pairs_of = {}
  for id, holder in pairs(plan.returned) do
    pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = id, holder
  end
  if #pairs_of > 0 then
    local key = P .. 'returned:' .. first
    redis.call('HSET', key, unpack(pairs_of))
    redis.call('PEXPIRE', key, int(idempotency == '' and RETURNED_UNKEYED_MS or RETURNED_MS))
  end
  return #pairs_of > 0
end

function CONFLICTS.was_returned(first)
  return redis.call('EXISTS', P .. 'returned:' .. first) == 1
end

-- Make each key name the job that takes it. A job that is skipped from the beginning needs no key.
function CONFLICTS.take_keys(plan)
  for _, job in pairs(plan.keys) do
    if not job.broken then
      UNIQUE.take(job.lock, job.id, '1')
    end
  end
end

end
