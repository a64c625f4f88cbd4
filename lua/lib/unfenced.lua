-- unfenced: reports of workers that name no fence, as they know of none; and many in one call.

local UNFENCED = {}

do

-- Return the fence that a report means. In place of one it may have `safe`: the last attempt's, unless an earlier
-- one of this run was lost or given back, for then its worker may be the one that reports; or `always`: the last attempt's
-- whatever was before, and the job is marked. '' matches no attempt.
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

-- Return what a function says to one of many reports; where something of its job is damaged, `otherwise`: the others are
-- taken all the same.
function UNFENCED.spare_others(id, otherwise, work, ...)
  local ok, result = pcall(work, ...)
  if ok then
    return result
  end
  quarantine(id)
  return otherwise
end

end
