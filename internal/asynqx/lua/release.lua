-- Makes jobs due that were put off for a reason which is no more.
--
-- KEYS[1] scheduled   KEYS[2] pending
-- ARGV[1] queue   ARGV[2] ms ahead to look   ARGV[3] the reason
-- ARGV[4] how many of the set to pass over, ARGV[5] how many to look at
-- returns {moved, looked at}
local latest = string.format('%.3f', (now + tonumber(ARGV[2])) / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', latest, 'LIMIT', ARGV[4], ARGV[5])
local moved = 0
for _, id in ipairs(ids) do
  local key = task(id)
  if redis.call('HGET', key, 'reason') == ARGV[3] then
    redis.call('ZREM', KEYS[1], id)
    to_pending(id, key)
    moved = moved + 1
  end
end
return { moved, #ids }
