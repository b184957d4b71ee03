-- Pauses a queue, also where Redis is full: people need it then.
--
-- KEYS[1] paused
-- ARGV[1] queue   ARGV[2] since when, unix seconds
-- returns 1, or 0 if it was paused already
also_when_full()
return redis.call('SET', KEYS[1], ARGV[2], 'NX') and 1 or 0
