-- Puts jobs that a breaker deferred to the back of the queue before their time, up to
-- 100, the one that is due first before the next.
--
-- KEYS[1] the deferred jobs of the breaker   KEYS[2] pending
-- ARGV[1] queue
-- returns {how many were released, how many entries are left}
local ids = redis.call('ZRANGE', KEYS[1], 0, 99)
if #ids > 0 then
  redis.call('ZREM', KEYS[1], unpack(ids)) -- first, for a Redis that is full
end
local released = 0
for _, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'reason')
  if f[1] == 'scheduled' and deferred_of(f[2]) == KEYS[1] then
    leave(id, key, f[1])
    to_pending(id, key)
    redis.call('HSET', key, 'available_at', now_ms)
    redis.call('HDEL', key, 'reason')
    released = released + 1
  end
end
return { released, redis.call('ZCARD', KEYS[1]) }
