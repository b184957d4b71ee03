-- Checks the index of one batch: its jobs have the batch in their records, and its name is in
-- the queue's list of batches.
--
-- KEYS[1] pending
-- ARGV[4] the batch   ARGV[5] cursor   ARGV[6] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local batch, cursor, max = ARGV[4], ARGV[5], ARGV[6]
local set = ours .. 'batch:' .. batch
local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')
if last[1] and not redis.call('ZSCORE', ours .. 'batches', batch) then
  report('batch_unlisted', batch)
  if not dry then
    redis.call('ZADD', ours .. 'batches', last[2], batch)
  end
end
local r = redis.call('ZSCAN', set, cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local f = redis.call('HMGET', task(id), 'state', 'batch')
  if not f[1] or f[2] ~= batch then
    report(f[1] and 'entry_stale' or 'entry_without_job', id)
    if not dry then
      redis.call('ZREM', set, id)
    end
  end
end
if not dry and #found > 0 and redis.call('EXISTS', set) == 0 then
  redis.call('ZREM', ours .. 'batches', batch)
end
return { r[1], #r[2] / 2, found }
