-- Holds jobs that a fetch has just taken, and whose keys let nothing through: they
-- wait among the jobs of their key, at the places that they had. Nothing is counted
-- and nothing noted, because nothing has happened to them.
--
-- KEYS[1] active   KEYS[2] lease
-- ARGV[1] queue    ARGV[2] the run that took them
-- ARGV[3...] per job: id, key, place, ms until it makes sense to ask for the key
-- returns {how many are held now, 1 if one of them was to be cancelled and has
--   children to tell}. One that this run does not have in hand any more is left alone;
--   what was asked of a job meanwhile is done
local n, children = 0, 0
for i = 3, #ARGV, 4 do
  local id, name, place = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local key = task(id)
  local f = redis.call('HMGET', key, 'run', 'crash_run', 'mark', 'expires_at', 'children')
  if f[2] == ARGV[2] then
    survived(key)
  end
  if f[1] == ARGV[2] and redis.call('LREM', KEYS[1], 1, id) == 1 then
    redis.call('ZREM', KEYS[2], id)
    local other = out_of_hand(id, key, f[4], f[3])
    if not other then
      hold(id, key, name, place)
      redis.call('ZADD', ours .. 'heldkeys', int(now + tonumber(ARGV[i + 3])), name)
      n = n + 1
    elseif other == 'cancelled' and f[5] then
      children = 1
    end
  end
end
return { n, children }
