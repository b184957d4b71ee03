-- Records the last event whose callbacks have been made: never an earlier one, and not if
-- another relay has recorded a later one.
--
-- KEYS[1] relayed   KEYS[2] relay, a lease: see internal/base/lease/lease.lua
-- ARGV[1] id of an entry   ARGV[2] id that was read before   ARGV[3] the relay's name
-- ARGV[4] ms for which the record stays
-- returns 1, or 0 if it was moved by another
local relayed_key, relay_key = KEYS[1], KEYS[2]
local to, from, by, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if (redis.call('GET', relayed_key) or '') ~= from or string.match(redis.call('GET', relay_key) or by, '^[^\n]*') ~= by then
  return 0
end
-- A full Redis takes the rest of a script that began by freeing memory.
redis.call('DEL', relayed_key)
redis.call('SET', relayed_key, to, 'PX', keep_ms)
return 1
