-- Pauses a queue, also where Redis is full: people need it then.
--
-- KEYS[1] paused
-- ARGV[1] queue   ARGV[2] who   ARGV[3] why ('' = nothing to say)
-- returns 1, or 0 if it was paused already
also_when_full()
local pause = cjson.encode({ since = now, by = ARGV[2], reason = ARGV[3] })
return redis.call('SET', KEYS[1], pause, 'NX') and 1 or 0
