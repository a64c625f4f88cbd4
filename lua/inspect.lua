-- inspect: look whether jobs and keys are as they say of each other, as of one moment, and mend what is not.
-- uses: core history timers unique slots concurrency ends edges arrays follows workflows gates waits heads inspection sums leftovers
--
-- ARGV[1]  mend   1: mend what can be mended safely; 0: only look
-- ARGV[2]  what   kind of the items, a function of INSPECT: see lib/inspection, lib/leftovers
-- ARGV[3..]  items  what to look at
--
-- Returns {"INSPECTED", looked, {item, code, detail, mended}, …}, an entry per fault; looked: how many of the items were looked at, the
-- others would be too much work; mended: 1 when it was put right by this call

local mend, what = ARGV[1] == '1', ARGV[2]
local SEARCHED = 20000 -- entries of lists: to look through so many takes 3 ms
local SHOWN = 200 -- so many bytes of what was found: it may be anything
local found = {}

local looked = 0
for at = 3, #ARGV do
  if WAITS.searched > SEARCHED then
    break
  end
  local item = ARGV[at]
  looked = looked + 1
  local function fault(code, detail, put_right)
    local mended = mend and put_right and pcall(put_right)
    if code == 'damaged' and mend and what == 'job' then
      quarantine(item)
    end
    found[#found + 1] = { item, code, string.sub(detail or '', 1, SHOWN), mended and 1 or 0 }
  end
  local ok, error = pcall(INSPECT[what], item, fault)
  if not ok then -- keys of the wrong type are found as such
    found[#found + 1] = { item, 'unreadable', string.sub(tostring(type(error) == 'table' and error.err or error), 1, SHOWN), 0 }
  end
end
flush()
return { 'INSPECTED', looked, unpack(found) }
