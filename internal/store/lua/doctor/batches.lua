-- Checks the names of batches: each has jobs.
--
-- KEYS[1] pending
-- ARGV[4] cursor   ARGV[5] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local cursor, max = ARGV[4], ARGV[5]
local r = redis.call('ZSCAN', ours .. 'batches', cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local batch = r[2][i]
  if redis.call('EXISTS', ours .. 'batch:' .. batch) == 0 then
    report('batch_empty', batch)
    if not dry then
      redis.call('ZREM', ours .. 'batches', batch)
    end
  end
end
return { r[1], #r[2] / 2, found }
