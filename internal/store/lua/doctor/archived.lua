-- Checks asynq's archive, where only asynq's own tools put jobs, and which drops all but
-- 10,000. Tasks of other programs stay there: see fetch.lua.
--
-- KEYS[1] pending
-- ARGV[4] cursor   ARGV[5] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local cursor, max = ARGV[4], ARGV[5]
local r = redis.call('ZSCAN', asynq .. 'archived', cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'msg')
  local state = f[1]
  local kind = 'archived'
  if not state then
    kind = 'entry_without_job'
  elseif state ~= 'archived' then
    kind = 'entry_stale'
  elseif f[2] and foreign(f[2]) then
    kind = 'foreign'
  end
  report(kind, id)
  if not dry and kind ~= 'foreign' then
    redis.call('ZREM', asynq .. 'archived', id)
    if kind == 'archived' then
      adopt(id, key)
    end
  end
end
return { r[1], #r[2] / 2, found }
