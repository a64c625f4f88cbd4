-- withdraw: take back a claim request whose answer can't be delivered.
-- uses: core history timers unique slots concurrency ends arrays workflows gates expiry rows claims
--
-- It is parked no longer, and what it has got is given back, the attempts refunded. If it was made again through another
-- inbox, that one answers it, and nothing happens here.
--
-- ARGV[1]  worker   name of the worker
-- ARGV[2]  request  id of the claim request
-- ARGV[3]  inbox    the inbox through which the caller has made it
-- ARGV[4]  queues   names with spaces between
--
-- Returns {"WITHDRAWN", given_back} or {"ELSEWHERE"}

local worker, request, inbox, queues = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local key = P .. 'worker:' .. worker .. ':claim' .. (string.match(request, '~%d') or '')
local last, asked, held = unpack(redis.call('HMGET', key, 'request', 'inbox', 'claims'))
if last ~= request or asked ~= inbox then
  return { 'ELSEWHERE' }
end
local given_back = 0
for id, fence in string.gmatch(held or '', '(%S+) (%S+)') do
  local ok, status = pcall(give_back, id, fence)
  if not ok then
    quarantine(id)
  elseif status then
    given_back = given_back + 1
  end
end
redis.call('HSET', key, 'claims', '', 'parked', '') -- made again, it is a new one; older ones stay overtaken
flush()
hint_left(queues) -- it may have been woken for work that it does not take now
return { 'WITHDRAWN', given_back }
