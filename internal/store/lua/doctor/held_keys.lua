-- Checks the keys that have held jobs: each has some.
--
-- KEYS[1] pending
-- ARGV[4] cursor   ARGV[5] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local cursor, max = ARGV[4], ARGV[5]
local r = redis.call('ZSCAN', ours .. 'held_keys', cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  if redis.call('EXISTS', held_of(r[2][i])) == 0 then
    report('key_empty', r[2][i])
    if not dry then
      redis.call('ZREM', ours .. 'held_keys', r[2][i])
    end
  end
end
return { r[1], #r[2] / 2, found }
