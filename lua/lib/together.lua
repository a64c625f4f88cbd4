-- together: run commands as of one moment, for `workron doctor`, which decides what to read and to write.

local TOGETHER = {}

do

-- Run the commands that stand in ARGV from `at` on, each as the number of its words and the words. Returns their answers,
-- false where there is none, or the key has another type; and the first other error.
function TOGETHER.run(at)
  local answers, failed = {}, nil
  while ARGV[at] do -- bound: the commands of one call, see workron/doctor/reading.py
    local last = at + tonumber(ARGV[at])
    local answer = ARGV[at + 1] == 'TIME' and TIME or redis.pcall(unpack(ARGV, at + 1, last)) -- a script reads it once
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
