-- array_discard: forget the values of arrays that were not stored after all.
--
-- ARGV[1..]  ids  id of a job; one that is stored keeps its values
--
-- Returns {"DISCARDED"}

for at = 1, #ARGV do
  if redis.call('EXISTS', job_key(ARGV[at])) == 0 then
    redis.call('UNLINK', P .. 'array:' .. ARGV[at] .. ':values')
  end
end
return { 'DISCARDED' }
