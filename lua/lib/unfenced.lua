-- unfenced: reports from workers that do not know their fence; and batches of reports.

local UNFENCED = {}

do

-- Return the fence that a report means. Instead of a fence, the report may have `safe` or `always`. `safe` means the
-- last attempt's fence, unless an earlier attempt of this run was lost or given back: its worker may be the one that
-- reports. `always` means the last attempt's fence in any case, and marks the job. '' matches no attempt.
function UNFENCED.meant_fence(id, fence)
  if fence ~= 'safe' and fence ~= 'always' then
    return fence
  end
  local row = redis.pcall('HMGET', job_key(id), 'fence', 'ended_fence', 'releases', 'losses', 'status')
  if fence == 'safe' and (row[3] or row[4]) then
    return ''
  end
  if fence == 'always' and row[5] == 'running' then
    redis.call('HSET', job_key(id), 'unfenced', '1')
  end
  return row[1] or row[2] or ''
end

-- Return the result of a function for one of many reports. If the data of its job is damaged, return
-- `otherwise`: the other reports are still handled.
function UNFENCED.spare_others(id, otherwise, work, ...)
  local ok, result = pcall(work, ...)
  if ok then
    return result
  end
  quarantine(id)
  return otherwise
end

end
