-- places: where in a sorted set one goes on, by score and member: jobs come and go before and behind it.

local PLACES = {}

do

-- Whether an id stands behind another. Lua's own order of texts is that of the server's language, not of sorted sets.
local function is_behind(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- The first rank behind a place in a sorted set, whether or not there still is what stood there.
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

-- A place as a text: a score and what stands there; and both of a text, nil if it is none.
function PLACES.text(score, member)
  return int(tonumber(score)) .. ' ' .. member
end

function PLACES.parse(text)
  local score, member = string.match(text or '', '^(%d+) (.*)$')
  return tonumber(score), member
end

end
