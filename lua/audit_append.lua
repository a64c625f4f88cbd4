-- audit_append: append the actions of API users to the audit log, and drop the oldest entries.
--
-- ARGV[1]  most  entries to keep, approximately
-- ARGV[2..]  entries  age in ms, id of the key, its name, operation, target, HTTP status, client's address
--
-- Returns {"NOTED"}

local most = ARGV[1]

for at = 2, #ARGV, 7 do
  redis.call('XADD', P .. 'audit', 'MAXLEN', '~', most, '*', 'at', int(NOW - tonumber(ARGV[at])), 'key', ARGV[at + 1],
    'name', ARGV[at + 2], 'action', ARGV[at + 3], 'target', ARGV[at + 4], 'status', ARGV[at + 5], 'from', ARGV[at + 6])
end
return { 'NOTED' }
