-- Puts a job back into the index of its batch.
--
-- KEYS[1] pending
-- ARGV[4] id   ARGV[5] when it was created, unix ms ('' = not known)
-- returns 1 if it was missing
local id, created_at = ARGV[4], ARGV[5]
local batch = redis.call('HGET', task(id), 'batch')
if dry or not batch or redis.call('ZSCORE', ours .. 'batch:' .. batch, id) then
  return 0
end
local created = created_at ~= '' and created_at or now_ms
redis.call('ZADD', ours .. 'batch:' .. batch, created, id)
redis.call('ZADD', ours .. 'batches', 'GT', created, batch)
return 1
