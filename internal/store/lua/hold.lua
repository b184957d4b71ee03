-- Holds jobs that a fetch has just returned and whose keys' breakers refuse them: they wait
-- among the jobs of their key, at their former places. Nothing counts, and the history stays.
--
-- KEYS[1] active   KEYS[2] lease
-- ARGV[1] queue    ARGV[2] the run that fetched them
-- ARGV[3...] per job: id, key, place, ms until a worker may ask for the key
-- returns {how many are held now, 1 if one of them was cancelled and has children}. One
--   that this run does not have any more is left alone; actions requested meanwhile are
--   applied
local active_key, lease_key = KEYS[1], KEYS[2]
local run = ARGV[2]
local n, children = 0, 0
for i = 3, #ARGV, 4 do
  local id, name, place = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local key = task(id)
  local f = redis.call('HMGET', key, 'run', 'crash_run', 'action', 'expires_at', 'children')
  if f[2] == run then
    take_crash_back(key)
  end
  if f[1] == run and redis.call('LREM', active_key, 1, id) == 1 then
    redis.call('ZREM', lease_key, id)
    local other = return_unstarted(id, key, f[4], f[3])
    if not other then
      hold(id, key, name, place)
      redis.call('ZADD', ours .. 'held_keys', int(now + tonumber(ARGV[i + 3])), name)
      n = n + 1
    elseif other == 'cancelled' and f[5] then
      children = 1
    end
  end
end
return { n, children }
