-- Deletes what is left of the pending jobs of a queue that is forgotten, if its list has nothing but tombstones: a
-- job may have been enqueued meanwhile.
--
-- KEYS[1] pending   KEYS[2] tombstones   KEYS[3] keyed   KEYS[4] turn   KEYS[5] turns_owed
local pending_key, tombstones_key, keyed_key, turn_key, owed_key = unpack(KEYS)
if redis.call('LLEN', pending_key) <= tonumber(redis.call('GET', tombstones_key) or 0) then
  redis.call('DEL', pending_key, tombstones_key, keyed_key, turn_key, owed_key)
end
return 0
