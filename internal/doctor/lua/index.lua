-- Looks at the entries of a sorted set of ids and takes out those whose job is gone
-- or, by its own account, somewhere else.
--
-- KEYS[1] pending
-- ARGV[4] the set   ARGV[5] state of its jobs ('' = any)
-- ARGV[6] cursor    ARGV[7] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local set, want = ARGV[4], ARGV[5]
local r = redis.call('ZSCAN', set, ARGV[6], 'COUNT', ARGV[7])
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local state = redis.call('HGET', task(id), 'state')
  if not state or (want ~= '' and state ~= want) then
    report(state and 'entry_stale' or 'entry_without_job', id)
    if not dry then
      redis.call('ZREM', set, id)
    end
  end
end
return { r[1], #r[2] / 2, found }
