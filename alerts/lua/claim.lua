-- Makes somebody the holder of a key, or lets them hold it for longer.
-- KEYS: 1 the key. ARGV: 1 who, 2 for how long (ms). Returns 1 if they are the holder.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
