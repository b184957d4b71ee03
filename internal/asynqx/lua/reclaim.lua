-- Puts jobs back to the head of the queue that a fetch took whose reply was
-- lost: they are in hand by Redis's account, and nobody has them.
--
-- KEYS[1] active   KEYS[2] lease   KEYS[3] pending
-- ARGV[1] task key prefix   ARGV[2...] runs of the fetches
-- returns how many were put back
local lost = {}
for i = 2, #ARGV do
  lost[ARGV[i]] = true
end
local n = 0
-- The list's left end is the latest: put that back first, so that order stays.
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local key = ARGV[1] .. id
  local run = redis.call('HGET', key, 'run')
  if run and lost[run] then
    redis.call('LREM', KEYS[1], 1, id)
    redis.call('ZREM', KEYS[2], id)
    redis.call('RPUSH', KEYS[3], id)
    redis.call('HSET', key, 'state', 'pending')
    n = n + 1
  end
end
return n
