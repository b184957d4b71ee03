-- Counts the jobs of one queue by where they are, and looks for the oldest one in
-- the pending list. It reads only.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many ids to skip at the head of the list
-- ARGV[3] ms within which a job has failed recently
-- ARGV[4] until when jobs that expire are counted, unix ms
-- returns {pending, scheduled, active, retry, completed, failed, cancelled, expired,
--   paused, waiting, held, pending_since of the oldest in ns ('' = none), the operator's
--   pause of the queue ('' = none), jobs that failed recently, waiting jobs that are overdue,
--   waiting jobs that expire until ARGV[4]}
local pending_key = KEYS[1]
local skip, recent_ms, expiring_until = ARGV[2], ARGV[3], ARGV[4]
local pending = redis.call('LLEN', pending_key)
local tombstones = tonumber(redis.call('GET', ours .. 'tombstones') or 0)
local out = { math.max(0, pending - tombstones) }
out[2] = redis.call('ZCARD', asynq .. 'scheduled')
out[3] = redis.call('LLEN', asynq .. 'active')
out[4] = redis.call('ZCARD', asynq .. 'retry')
out[5] = redis.call('ZCARD', asynq .. 'completed')
for i, name in ipairs({ 'failed', 'cancelled', 'expired', 'paused', 'waiting', 'held' }) do
  out[5 + i] = redis.call('ZCARD', ours .. name)
end
out[12] = ''
-- The list's right end is the head. Tombstones can be many there, where no worker fetches.
local from, last = tonumber(skip), tonumber(skip) + 1000
while out[1] > 0 and out[12] == '' and from < last and from < pending do
  local ids = redis.call('LRANGE', pending_key, -from - 50, -from - 1)
  for i = #ids, 1, -1 do
    local f = redis.call('HMGET', task(ids[i]), 'state', 'pending_since')
    if f[1] == 'pending' and f[2] then
      out[12] = f[2]
      break
    end
  end
  from = from + 50
end
out[13] = redis.call('GET', asynq .. 'paused') or ''
out[14] = redis.call('ZCOUNT', ours .. 'failed', int(now - tonumber(recent_ms)), '+inf')
out[15] = redis.call('ZCOUNT', ours .. 'expiry', '-inf', now_ms)
out[16] = redis.call('ZCOUNT', ours .. 'expiry', '-inf', expiring_until)
return out
