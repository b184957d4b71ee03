-- Releases jobs that a breaker deferred: puts up to 100 of them to the back of the queue
-- before their time, in the order in which they are due.
--
-- KEYS[1] the deferred jobs of the breaker   KEYS[2] pending
-- ARGV[1] queue
-- returns {how many were released, how many entries are left}
local deferred_key = KEYS[1]
local ids = redis.call('ZRANGE', deferred_key, 0, 99)
if #ids > 0 then
  redis.call('ZREM', deferred_key, unpack(ids)) -- first, for a Redis that is full
end
local released = 0
for _, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'reason')
  if f[1] == 'scheduled' and deferred_of(f[2]) == deferred_key then
    take_out(id, key, f[1])
    to_pending(id, key)
    redis.call('HSET', key, 'available_at', now_ms)
    redis.call('HDEL', key, 'reason')
    released = released + 1
  end
end
return { released, redis.call('ZCARD', deferred_key) }
