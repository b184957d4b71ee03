-- Holds a lock for longer if it is still held.
-- KEYS: 1 the lock. ARGV: 1 its token, 2 for how long (ms). Returns 1 if it is.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
