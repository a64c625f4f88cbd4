-- array_discard: delete the values of arrays that were not stored.
--
-- ARGV[1..]  ids  id of a job; a stored job keeps its values
--
-- Returns {"DISCARDED"}

for at = 1, #ARGV do
  if redis.call('EXISTS', job_key(ARGV[at])) == 0 then
    redis.call('UNLINK', P .. 'array:' .. ARGV[at] .. ':values')
  end
end
return { 'DISCARDED' }
