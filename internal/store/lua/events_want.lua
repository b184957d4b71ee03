-- Sees to it that the stream of ends exists, and says that somebody reads it.
--
-- KEYS[1] stream   KEYS[2] wanted   KEYS[3] told
-- ARGV[1] ms for which it is wanted   ARGV[2] ms for which its ends are to be told, from
--   now on unless they are already ('0' = they are not)
-- returns the id of the last entry, or where it is empty one that is before all to come
-- A Redis that is full takes the rest of a script that began by freeing memory.
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[1])
local last
if redis.call('EXISTS', KEYS[1]) == 0 then
  -- An entry that is there and gone leaves a stream that is there and empty.
  last = redis.call('XADD', KEYS[1], '*', 'none', '')
  redis.call('XDEL', KEYS[1], last)
else
  local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  if newest then
    last = newest[1]
  else
    local clock = redis.call('TIME')
    last = string.format('%.0f-0', clock[1] * 1000 + math.floor(clock[2] / 1000) - 1)
  end
end
if ARGV[2] ~= '0' and redis.call('PEXPIRE', KEYS[3], ARGV[2]) == 0 then
  redis.call('SET', KEYS[3], last, 'PX', ARGV[2])
end
return last
