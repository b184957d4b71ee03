-- Checks jobs in flight, from the latest on. asynq recovers jobs by their leases, and would
-- never recover one without.
--
-- KEYS[1] pending
-- ARGV[4] index to start at   ARGV[5] how many at most
-- returns {index to go on at (-1 = that was all), how many were looked at, found}
local start, max = ARGV[4], ARGV[5]
local start, n = tonumber(start), tonumber(max)
local ids = redis.call('LRANGE', asynq .. 'active', start, start + n - 1)
local kept = 0
for _, id in ipairs(ids) do
  local key = task(id)
  local stale = redis.call('HGET', key, 'state') ~= 'active'
  local leased = redis.call('ZSCORE', asynq .. 'lease', id)
  if leased and not stale then
    kept = kept + 1
  else
    report(stale and 'active_stale' or 'active_without_lease', id)
    if dry then
      kept = kept + 1
    else
      redis.call('LREM', asynq .. 'active', 1, id)
      if stale then
        redis.call('ZREM', asynq .. 'lease', id)
      else
        -- The later ones come first, so that order stays.
        to_head(id, key, 'was in flight without a lease')
      end
    end
  end
end
return { #ids < n and -1 or start + kept, #ids, found }
