-- Checks the outbox. A parent that waits or runs again does not belong there; a missing one
-- does, as long as it has children.
--
-- KEYS[1] pending
-- ARGV[4] cursor   ARGV[5] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local cursor, max = ARGV[4], ARGV[5]
local r = redis.call('ZSCAN', ours .. 'outbox', cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local state = redis.call('HGET', task(id), 'state')
  local kind
  if not state and redis.call('EXISTS', ours .. 'children:' .. id) == 0 then
    kind = 'entry_without_job'
  elseif state == 'active' or waits[state or ''] then
    kind = 'entry_stale'
  end
  if kind then
    report(kind, id)
    if not dry then
      redis.call('ZREM', ours .. 'outbox', id)
    end
  end
end
return { r[1], #r[2] / 2, found }
