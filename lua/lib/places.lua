-- places: where to continue in a sorted set, by score and member. Members before and after that place may come and go.

local PLACES = {}

do

-- Whether an id sorts after another. Lua compares strings by the server's locale; sorted sets compare bytes.
local function is_behind(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- Return the first rank after a place in a sorted set, even if the member is gone.
function PLACES.rank_behind(zset, score, member)
  local low, high = 0, redis.call('ZCARD', zset)
  while low < high do -- bound: halved each time
    local middle = math.floor((low + high) / 2)
    local one = redis.call('ZRANGE', zset, int(middle), int(middle), 'WITHSCORES')
    local its = tonumber(one[2])
    if its > score or its == score and is_behind(one[1], member) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Write a place as a text, its score and member; and read both from a text, nil if it is damaged.
function PLACES.text(score, member)
  return int(tonumber(score)) .. ' ' .. member
end

function PLACES.parse(text)
  local score, member = string.match(text or '', '^(%d+) (.*)$')
  return tonumber(score), member
end

end
