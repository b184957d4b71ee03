-- Records that the handler of a job has not returned long after its context ended.
--
-- KEYS[1] task hash
-- ARGV[1] queue   ARGV[2] the run that it has come of
-- returns 1, or 0 if that run does not have the job any more
also_when_full()
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'stuck_run', ARGV[2])
return 1
