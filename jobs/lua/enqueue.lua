-- Enqueues jobs of one queue, in the order given.
--
-- KEYS[1] pending list   KEYS[2] scheduled set
-- ARGV[1] task key prefix
-- ARGV[2] now, unix nanoseconds (asynq's pending_since)
-- ARGV[3...] per job: id, encoded message, available_at in unix ms ("" = now)
-- returns per job: 1 enqueued, 0 the id exists already
--
-- The fields written are asynq's own enqueue and schedule scripts' (v0.26.0),
-- so that a job is an asynq task to asynq's tools.
local results, ready = {}, {}
for i = 3, #ARGV, 3 do
  local id, key = ARGV[i], ARGV[1] .. ARGV[i]
  if redis.call('EXISTS', key) == 1 then
    results[#results + 1] = 0
  elseif ARGV[i + 2] == '' then
    redis.call('HSET', key, 'msg', ARGV[i + 1], 'state', 'pending', 'pending_since', ARGV[2])
    ready[#ready + 1] = id
    results[#results + 1] = 1
  else
    redis.call('HSET', key, 'msg', ARGV[i + 1], 'state', 'scheduled', 'available_at', ARGV[i + 2])
    redis.call('ZADD', KEYS[2], string.format('%.3f', tonumber(ARGV[i + 2]) / 1000), id)
    results[#results + 1] = 1
  end
end
if #ready > 0 then
  redis.call('LPUSH', KEYS[1], unpack(ready))
end
return results
