-- Makes jobs the children of a parent in this queue.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3...] children, as '<queue> <id>'
-- returns {the parent's state ('-' if there is none), its last error}; the
--   children were added unless the state is final
also_when_full()
local key = task(ARGV[2])
local f = redis.call('HMGET', key, 'state', 'last_error')
local state = f[1] or '-'
if state == '-' or state == 'completed' or state == 'failed' or state == 'cancelled' or state == 'expired' then
  return { state, f[2] or '' }
end
redis.call('HSET', key, 'children', '1')
for i = 3, #ARGV do
  redis.call('SADD', ours .. 'children:' .. ARGV[2], ARGV[i])
end
return { state, '' }
