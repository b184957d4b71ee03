-- Counts failed jobs in slices of time.
-- KEYS: 1 hash of slice → count. ARGV: 1 how many failed, 2 the time looked back (ms).
-- Returns how many failed within that time, to a sixtieth of it.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local width = math.max(1, math.floor(ARGV[2] / 60))
local slice = math.floor(now / width)
-- A full Redis takes the rest of a script that began by freeing memory.
redis.call('HDEL', KEYS[1], '')
redis.call('HINCRBY', KEYS[1], string.format('%.0f', slice), ARGV[1])
local sum = 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if tonumber(all[i]) <= slice - 60 then
    redis.call('HDEL', KEYS[1], all[i])
  else
    sum = sum + all[i + 1]
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return sum
