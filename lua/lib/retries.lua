-- retries: whether another attempt follows a failed one, and after which delay.
-- uses: formats
--
-- A job's own policy is its field `retry` (see formats). Exit codes look like `1,64-78`.

local RETRIES = {}

do

local function covers(codes, code)
  for first, last in string.gmatch(codes, '(%d+)%-?(%d*)') do
    if code >= tonumber(first) and code <= tonumber(last ~= '' and last or first) then
      return true
    end
  end
  return false
end

-- Whether the exit code rules out another attempt. An end without a code (signal, timeout …) never does.
local function is_final(outcome, only, never)
  local code = outcome.reason == 'exit_code' and tonumber(outcome.exit_code)
  if not code then
    return false
  end
  return covers(never, code) or only ~= '' and not outcome.retry_after_ms and not covers(only, code)
end

-- Exponential backoff with jitter: delay × factor^(attempt - 1), at most `longest`; the share `jitter` of it is random.
local function backoff(attempt, delay, factor, longest, jitter, chance)
  local full = math.min(delay * factor ^ math.min(attempt - 1, 100), longest)
  return math.floor(full * (1 - jitter + jitter * chance))
end

-- Return the delay before the next attempt of a failed job. Sets `outcome.final` if there must not be one.
--
-- `retry_ms` and `retry_max_ms` are the settings. A delay that the job itself
-- requested is used, up to the longest delay.
function RETRIES.wait_after(job, outcome, retry_ms, retry_max_ms, chance)
  local row = redis.call('HMGET', job_key(job.id), 'attempts', 'max_attempts', 'retry')
  job.attempts = tonumber(row[1] or NUMBERS.attempts)
  if row[2] or not job.hooks then -- otherwise its array may have the value
    job.max_attempts = tonumber(row[2] or NUMBERS.max_attempts)
  end
  local delay, factor, longest, jitter, only, never =
    FORMATS.read_retry(row[3] or job.hooks and job.retry)
  outcome.final = delay and is_final(outcome, only, never)
  delay = tonumber(delay or '') or retry_ms
  longest = tonumber(longest or '') or outcome.retry_after_ms and retry_max_ms or math.max(retry_max_ms, delay)
  if outcome.retry_after_ms then
    return math.min(outcome.retry_after_ms, longest)
  end
  return backoff(job.attempts, delay, tonumber(factor or '') or 2, longest, tonumber(jitter or '') or 0.5, chance)
end

end
