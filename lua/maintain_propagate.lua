-- maintain_propagate: visit the next edges of ended jobs.
-- uses: edges
--
-- ARGV[1]  limit  most edges to visit, 1..200
--
-- Returns {"PROPAGATED"} if none are left, or {"MORE"}

local more = EDGES.propagate(tonumber(ARGV[1]))
flush()
return { more and 'MORE' or 'PROPAGATED' }
