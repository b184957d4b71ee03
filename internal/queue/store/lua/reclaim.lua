-- Puts back the jobs of fetches whose reply was lost: Redis counts them as running, and no
-- worker has them.
--
-- KEYS[1] active   KEYS[2] lease   KEYS[3] pending
-- ARGV[1] queue   ARGV[2] how many of the latest to pass over   ARGV[3] how many to look at
-- ARGV[4...] runs of the fetches
-- returns {how many were put back, 1 if there are more to look at}
local active_key, lease_key = KEYS[1], KEYS[2]
local lost = {}
for i = 4, #ARGV do
  lost[ARGV[i]] = true
end
local from, n = tonumber(ARGV[2]), 0
local to = from + tonumber(ARGV[3]) - 1
local more = redis.call('LLEN', active_key) > to + 1 and 1 or 0
-- The list's left end is the latest: put that back first, so that order stays.
for _, id in ipairs(redis.call('LRANGE', active_key, from, to)) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'run', 'action', 'expires_at')
  if f[1] and lost[f[1]] then
    redis.call('LREM', active_key, 1, id)
    redis.call('ZREM', lease_key, id)
    if not return_unstarted(id, key, f[3], f[2]) then
      to_front(id, key)
    end
    n = n + 1
  end
end
return { n, more }
