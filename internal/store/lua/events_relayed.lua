-- Moves the mark on up to which the ends of a stream have been told: never back, and not
-- where another relay has moved it since.
--
-- KEYS[1] told   KEYS[2] relay
-- ARGV[1] id of an entry   ARGV[2] id that was read before   ARGV[3] who
-- ARGV[4] ms for which the mark stays
-- returns 1, or 0 if it was moved by another
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[2] or (redis.call('GET', KEYS[2]) or ARGV[3]) ~= ARGV[3] then
  return 0
end
-- A full Redis takes the rest of a script that began by freeing memory.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
return 1
