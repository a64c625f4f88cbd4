-- heartbeat: a worker proves that it lives, and renews the leases of all it runs.
-- uses: core unfenced
--
-- Renews while status and fence match, even if the heartbeat key is gone. A lease is never renewed beyond
-- started_at + timeout + stop_ms, nor beyond the cancel + stop_ms: whoever ignores both is ended by the reaper.
--
-- ARGV[1]  worker    name of the worker, '' for whoever has the attempt
-- ARGV[2]  lease_ms  length of the lease, ms; a worker silent for longer is lost
-- ARGV[3]  stop_ms   time to stop a command that must end, ms
-- ARGV[4]  about     what the worker says of itself: JSON; '': nothing
-- ARGV[5..]  held    id, fence (or `safe`, `always`: see lib/unfenced) of each running attempt
--
-- Returns {"BEAT", drain, "ok" | "cancel" | "lost", …} in the order of `held`; drain: as `drain` was told, '' for no
-- such wish

local worker, lease_ms, stop_ms, about = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local function overdue(timeout_ms, started_at, cancel_requested_at)
  return timeout_ms and NOW > tonumber(started_at) + tonumber(timeout_ms) + stop_ms
    or cancel_requested_at and NOW > tonumber(cancel_requested_at) + stop_ms
end

local function beat(id, fence)
  fence = meant_fence(id, fence)
  local key = job_key(id)
  local row = redis.pcall('HMGET', key, 'status', 'fence', 'timeout_ms', 'started_at', 'cancel_requested_at')
  if type(row) ~= 'table' or row[1] ~= 'running' or row[2] ~= fence or overdue(row[3], row[4], row[5]) then
    return 'lost'
  end
  local holder = worker ~= '' and worker or redis.call('HGET', key, 'worker')
  redis.call('SET', key .. ':heartbeat', holder .. ' ' .. fence .. ' ' .. NOW_TEXT, 'PX', lease_ms)
  index(P .. 'leases', id, NOW + tonumber(lease_ms))
  return row[5] and 'cancel' or 'ok'
end

local own_key = P .. 'worker:' .. worker
local answer = { 'BEAT', redis.call('HGET', own_key, 'drain') or '' }
for at = 5, #ARGV, 2 do
  answer[#answer + 1] = beat(ARGV[at], ARGV[at + 1])
end
if about ~= '' then
  redis.call('HSET', own_key, 'about', about, 'lease_ms', lease_ms)
  redis.call('PEXPIRE', own_key, int(WORKER_SHOWN_MS))
  redis.call('ZADD', P .. 'workers', NOW_TEXT, worker)
end
flush()
return answer
