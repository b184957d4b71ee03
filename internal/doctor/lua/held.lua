-- Looks at the held jobs of one key: they are held and of that key, and workers ask
-- for the key.
--
-- KEYS[1] pending
-- ARGV[4] the key   ARGV[5] cursor   ARGV[6] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local set, good = held_of(ARGV[4]), false
local r = redis.call('ZSCAN', set, ARGV[5], 'COUNT', ARGV[6])
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local f = redis.call('HMGET', task(id), 'state', 'key')
  if f[1] ~= 'held' or f[2] ~= ARGV[4] then
    report(f[1] and 'entry_stale' or 'entry_without_job', id)
    if not dry then
      redis.call('ZREM', set, id)
    end
  else
    good = true
  end
end
if not dry then
  drop_key(ARGV[4])
end
if good and not redis.call('ZSCORE', ours .. 'heldkeys', ARGV[4]) then
  report('key_unlisted', ARGV[4])
  if not dry then
    redis.call('ZADD', ours .. 'heldkeys', now_ms, ARGV[4])
  end
end
return { r[1], #r[2] / 2, found }
