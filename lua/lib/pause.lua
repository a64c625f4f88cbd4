-- pause: while a rebuild writes all indexes from the jobs, nothing else changes (see doctor_rebuild). The loader puts this
-- part behind core in each script, except those that may run during a rebuild (see workron/redis/scripts.py).

do
  local row = redis.pcall('HMGET', KEYS[1], 'fence', 'gated', 'rebuilding_until') -- what claims read of it
  if not row.err then
    meta = row
    if NOW < (tonumber(row[3] or '') or 0) then
      return redis.error_reply('REBUILDING all that is in Redis')
    end
  end
end
