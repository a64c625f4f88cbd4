-- together: run commands atomically for `workron doctor`, which decides what to read and write.

local TOGETHER = {}

do

-- Run the commands in ARGV from `at` on, each given as its number of words and the words. Returns their answers (false
-- if there is none, or the key has another type) and the first other error.
function TOGETHER.run(at)
  local answers, failed = {}, nil
  while ARGV[at] do -- bound: the commands of one call, see workron/doctor/reading.py
    local last = at + tonumber(ARGV[at])
    -- a script reads TIME once
    local answer = ARGV[at + 1] == 'TIME' and TIME or redis.pcall(unpack(ARGV, at + 1, last))
    if type(answer) == 'table' and (answer.err or answer.ok) then
      if answer.err and not string.find(tostring(answer.err), 'WRONGTYPE', 1, true) then
        failed = failed or answer
      end
      answer = answer.ok or false
    end
    answers[#answers + 1] = answer
    at = last + 1
  end
  return answers, failed
end

end
