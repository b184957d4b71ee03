-- Pauses a queue, also where Redis is full: operators need it then.
--
-- KEYS[1] paused
-- ARGV[1] queue   ARGV[2] the operator   ARGV[3] why ('' = not given)
-- returns 1, or 0 if it was paused already
local paused_key = KEYS[1]
local by, why = ARGV[2], ARGV[3]
allow_when_full()
local pause = cjson.encode({ since = now, by = by, reason = why })
if not redis.call('SET', paused_key, pause, 'NX') then
  return 0
end
redis.pcall('PUBLISH', namespace .. ':events', string.match(queue, '^[^:]*:([^:]*)'))
return 1
