-- Holds jobs that a fetch has just returned and whose keys' breakers refuse them: they wait
-- among the jobs of their key, at their former places. Nothing counts, and the history stays.
--
-- KEYS[1] active   KEYS[2] lease
-- ARGV[1] queue    ARGV[2] the run that fetched them
-- ARGV[3...] per job: id, key, its place or '' for the end, ms until a worker may ask for the
--   key or '' for the time that it has
-- returns {how many are held now, 1 if one of them was cancelled and has children}. One
--   that this run does not have any more is left alone; actions requested meanwhile are
--   applied
local active_key, lease_key = KEYS[1], KEYS[2]
local run = ARGV[2]
local n, children = 0, 0
for i = 3, #ARGV, 4 do
  local id, name, place, ms = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local key = task(id)
  local f = redis.call('HMGET', key, 'run', 'crash_run', 'action', 'expires_at', 'children', 'key', 'started_at', 'place')
  if f[2] == run then
    take_crash_back(key)
  end
  if f[1] == run and redis.call('LREM', active_key, 1, id) == 1 then
    redis.call('ZREM', lease_key, id)
    local other = return_unstarted(id, key, f[4], f[3])
    if not other then
      if f[6] ~= name then
        redis.call('HSET', key, 'key', name, 'job_key', f[6] or '')
      end
      -- Without a place it came from the pending list: its place is the time of the fetch.
      hold(id, key, name, place or tonumber(f[7]) * 1000 + i)
      local _, charged = taken(f[8], run)
      refund(name, charged)
      if ms then
        local owed = redis.call('ZSCORE', ours .. 'turns', name)
        if owed then
          redis.call('ZADD', ours .. 'turns_owed', owed, name)
        end
        redis.call('ZADD', ours .. 'held_keys', int(now + ms), name)
        redis.call('ZREM', ours .. 'turns', name)
      else
        redis.call('ZADD', ours .. 'held_keys', 'NX', now_ms, name)
      end
      n = n + 1
    elseif (other == 'cancelled' or other == 'completed') and f[5] then
      children = 1
    end
  end
end
return { n, children }
