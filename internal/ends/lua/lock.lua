-- Lets one relay at a time make callbacks of a stream.
--
-- KEYS[1] relay
-- ARGV[1] who   ARGV[2] ms ('0' = gives it up)
-- returns 1 if it is the caller's
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
