-- attempt_release: give running jobs back unfinished (drain, undelivered claim), to the head of their pending list.
-- uses: jobs ends unfenced
--
-- The attempt is refunded, at most 10 times per run. A job with an accepted cancel ends `cancelled`; after a missed
-- deadline it ends `failed`.
--
-- ARGV[1..]  held  id, fence (or `safe`, `always`: see lib/unfenced) of each attempt
--
-- Returns {"RELEASED", status | "LOST", …} in the order of `held`

local function release(id, fence)
  return ENDS.give_back(id, UNFENCED.meant_fence(id, fence)) or 'LOST'
end

local answer = { 'RELEASED' }
for at = 1, #ARGV, 2 do
  answer[#answer + 1] = UNFENCED.spare_others(ARGV[at], 'LOST', release, ARGV[at], ARGV[at + 1])
end
flush()
return answer
