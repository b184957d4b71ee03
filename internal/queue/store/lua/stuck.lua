-- Records that the handler of a job has not returned long after its context ended.
--
-- KEYS[1] task hash
-- ARGV[1] queue   ARGV[2] the run that fetched it
-- returns 1, or 0 if that run does not have the job any more
local key = KEYS[1]
local run = ARGV[2]
allow_when_full()
if redis.call('HGET', key, 'run') ~= run then
  return 0
end
redis.call('HSET', key, 'stuck_run', run)
return 1
