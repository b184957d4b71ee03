-- Checks parents that have children. A finished or missing parent is in the outbox; any other
-- has the field children.
--
-- KEYS[1] pending
-- ARGV[4...] parents
-- returns {how many were looked at, found}
for i = 4, #ARGV do
  local id = ARGV[i]
  if redis.call('EXISTS', ours .. 'children:' .. id) == 1 then
    local key = task(id)
    local f = redis.call('HMGET', key, 'state', 'children')
    local runs = f[1] == 'active' or f[1] == 'accepted' or waits[f[1] or '']
    if not runs and not redis.call('ZSCORE', ours .. 'outbox', id) then
      report(f[1] and 'children_waiting' or 'children_orphaned', id)
      if not dry then
        redis.call('ZADD', ours .. 'outbox', now_ms, id)
      end
    elseif runs and not f[2] then
      report('children_waiting', id)
      if not dry then
        redis.call('HSET', key, 'children', '1')
      end
    end
  end
end
return { #ARGV - 3, found }
