-- release: give running jobs back unfinished (drain, undelivered claim), at the head of their list.
-- uses: core timers unique slots concurrency ends arrays follows workflows unfenced
--
-- The attempt is refunded, at most 10 times per job. A job whose cancel was accepted ends `cancelled`.
--
-- ARGV[1..]  held  id, fence (or `safe`, `always`: see lib/unfenced) of each attempt
--
-- Returns {"RELEASED", status | "LOST", …} in the order of `held`

local answer = { 'RELEASED' }
for at = 1, #ARGV, 2 do
  answer[#answer + 1] = give_back(ARGV[at], meant_fence(ARGV[at], ARGV[at + 1])) or 'LOST'
end
flush()
return answer
