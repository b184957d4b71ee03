-- Checks the held jobs of one key: they are held and of that key, and the key is in the list
-- of held keys.
--
-- KEYS[1] pending
-- ARGV[4] the key   ARGV[5] cursor   ARGV[6] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local name, cursor, max = ARGV[4], ARGV[5], ARGV[6]
local set, good = held_of(name), false
local r = redis.call('ZSCAN', set, cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local f = redis.call('HMGET', task(id), 'state', 'key')
  if f[1] ~= 'held' or f[2] ~= name then
    report(f[1] and 'entry_stale' or 'entry_without_job', id)
    if not dry then
      redis.call('ZREM', set, id)
    end
  else
    good = true
  end
end
if not dry then
  forget_key_if_empty(name)
end
if good and not redis.call('ZSCORE', ours .. 'held_keys', name) then
  report('key_unlisted', name)
  if not dry then
    redis.call('ZADD', ours .. 'held_keys', now_ms, name)
  end
end
return { r[1], #r[2] / 2, found }
