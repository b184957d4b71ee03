-- Keeps the result of a renewal, and releases its lease.
--
-- KEYS[1] record, see claim.lua   KEYS[2] lease
-- ARGV[1] holder of the lease   ARGV[2] version of the record that was renewed
-- ARGV[3] ms for which the record is kept
-- ARGV[4…] names of fields and their values; a name with '+' has ms from now ('' = none)
-- returns 1, or 0 if another process has renewed the record meanwhile
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- A full Redis takes the rest of a script that began by freeing memory.
if redis.call('GET', KEYS[2]) == ARGV[1] then
  redis.call('DEL', KEYS[2])
end
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], 'problem', 'problem_of', 'problem_until')
for i = 4, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if string.sub(name, 1, 1) == '+' then
    name = string.sub(name, 2)
    value = value ~= '' and string.format('%.0f', now + tonumber(value)) or ''
  end
  redis.call('HSET', KEYS[1], name, value)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
