-- Writes a value if a lock is still held.
-- KEYS: 1 the lock, a lease (see internal/base/lease/lease.lua), 2 the value. ARGV: 1 the lock's token, 2 the value, 3 how long it is
-- kept (ms). Returns 1 if it was written.
if string.match(redis.call('GET', KEYS[1]) or '', '^[^\n]*') ~= ARGV[1] then
  return 0
end
-- A full Redis takes the rest of a script that began by freeing memory.
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
