-- Deletes the pending list of a queue that is forgotten, if it has nothing but tombstones: a job may have been
-- enqueued meanwhile.
--
-- KEYS[1] pending   KEYS[2] tombstones
local pending_key, tombstones_key = KEYS[1], KEYS[2]
if redis.call('LLEN', pending_key) <= tonumber(redis.call('GET', tombstones_key) or 0) then
  redis.call('DEL', pending_key, tombstones_key)
end
return 0
