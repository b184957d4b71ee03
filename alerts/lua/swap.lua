-- Writes a value unless it has changed.
-- KEYS: 1 the value. ARGV: 1 what it was ('' for none), 2 what it is to be, 3 how long
-- it is kept (ms). Returns 1 if it was written.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
-- A full Redis takes the rest of a script that began by freeing memory.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
