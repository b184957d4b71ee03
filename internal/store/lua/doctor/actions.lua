-- Checks the ids with a requested action: each is in flight and has the action in its record.
-- Workers remove the ids of completed jobs, within a second.
--
-- KEYS[1] pending
-- ARGV[4] cursor   ARGV[5] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local cursor, max = ARGV[4], ARGV[5]
local r = redis.call('SSCAN', ours .. 'actions', cursor, 'COUNT', max)
for _, id in ipairs(r[2]) do
  local f = redis.call('HMGET', task(id), 'state', 'action')
  if f[1] ~= 'completed' and (f[1] ~= 'active' or not f[2]) then
    report(f[1] and 'entry_stale' or 'entry_without_job', id)
    if not dry then
      redis.call('SREM', ours .. 'actions', id)
    end
  end
end
return { r[1], #r[2], found }
