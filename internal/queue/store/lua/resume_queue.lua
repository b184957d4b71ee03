-- Ends the operator's pause of a queue and wakes its workers.
--
-- KEYS[1] paused
-- ARGV[1] queue
-- returns 1, or 0 if it was not paused
local paused_key = KEYS[1]
local ended = redis.call('DEL', paused_key)
if ended == 1 then
  wake()
  redis.pcall('PUBLISH', namespace .. ':events', string.match(queue, '^[^:]*:([^:]*)'))
end
return ended
