-- rebuild_lock: block all changes while a rebuild writes all indexes from the jobs (see doctor_rebuild). The loader puts this
-- part after core in each script, except scripts that may run during a rebuild (see workron/redis/scripts.py).

do
  local row = redis.pcall('HMGET', KEYS[1], 'fence', 'gated', 'rebuilding_until') -- what claims read of meta
  if not row.err then
    meta = row
    if NOW < (tonumber(row[3] or '') or 0) then
      return redis.error_reply('REBUILDING all that is in Redis')
    end
  end
end
