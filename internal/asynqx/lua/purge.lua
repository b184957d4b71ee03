-- Deletes failed jobs whose retention has ended, up to ARGV[3] of them.
--
-- KEYS[1] failed
-- ARGV[1] task key prefix   ARGV[2] retention in ms   ARGV[3] how many at most
-- returns how many were deleted
local time = redis.call('TIME')
local before = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[2])
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', before), 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do
  redis.call('DEL', ARGV[1] .. id)
end
if #ids > 0 then
  redis.call('ZREM', KEYS[1], unpack(ids))
end
return #ids
