-- Checks leases. One that ends later than its length from now was set before the clock went
-- back. One whose job is not in the list of jobs in flight is stale; if the job's
-- state is active, the list has lost it.
--
-- KEYS[1] pending
-- ARGV[4] length of a lease in ms
-- ARGV[5] cursor   ARGV[6] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local lease_ms, cursor, max = ARGV[4], ARGV[5], ARGV[6]
local r = redis.call('ZSCAN', asynq .. 'lease', cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local id = r[2][i]
  if not redis.call('LPOS', asynq .. 'active', id) then
    local key = task(id)
    if redis.call('HGET', key, 'state') == 'active' then
      report('lost', id)
      if not dry then
        redis.call('LPUSH', asynq .. 'active', id)
        repaired(key, 'active', 'was missing from the list of jobs in flight')
      end
    else
      report('lease_stale', id)
      if not dry then
        redis.call('ZREM', asynq .. 'lease', id)
      end
    end
  elseif tonumber(r[2][i + 1]) > tonumber(lease_end(lease_ms)) then
    report('lease_ahead', id)
    if not dry then
      redis.call('ZADD', asynq .. 'lease', 'XX', lease_end(lease_ms), id)
    end
  end
end
return { r[1], #r[2] / 2, found }
