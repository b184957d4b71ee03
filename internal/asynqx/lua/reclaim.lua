-- Puts jobs back to where they were that a fetch took whose reply was lost: they are
-- in hand by Redis's account, and nobody has them.
--
-- KEYS[1] active   KEYS[2] lease   KEYS[3] pending
-- ARGV[1] queue   ARGV[2...] runs of the fetches
-- returns how many were put back
local lost = {}
for i = 2, #ARGV do
  lost[ARGV[i]] = true
end
local n = 0
-- The list's left end is the latest: put that back first, so that order stays.
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'run', 'mark', 'expires_at')
  if f[1] and lost[f[1]] then
    redis.call('LREM', KEYS[1], 1, id)
    redis.call('ZREM', KEYS[2], id)
    if not out_of_hand(id, key, f[3], f[2]) then
      to_front(id, key)
    end
    n = n + 1
  end
end
return n
