-- Makes jobs due that were put off for a reason which is no more.
--
-- KEYS[1] scheduled   KEYS[2] pending
-- ARGV[1] task key prefix   ARGV[2] ms ahead to look   ARGV[3] the reason
-- ARGV[4] how many of the set to pass over, ARGV[5] how many to look at
-- returns {moved, looked at}
local time = redis.call('TIME')
local ns = time[1] .. string.format('%06d', tonumber(time[2])) .. '000'
local latest = string.format('%.3f', time[1] + tonumber(ARGV[2]) / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', latest, 'LIMIT', ARGV[4], ARGV[5])
local moved = 0
for _, id in ipairs(ids) do
  local key = ARGV[1] .. id
  if redis.call('HGET', key, 'reason') == ARGV[3] then
    redis.call('ZREM', KEYS[1], id)
    redis.call('LPUSH', KEYS[2], id)
    redis.call('HSET', key, 'state', 'pending', 'pending_since', ns)
    moved = moved + 1
  end
end
return { moved, #ids }
