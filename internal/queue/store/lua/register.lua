-- Registers jobs as children of a parent in this queue.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3...] children, as '<queue> <id>'
-- returns {the parent's state ('-' if there is none), its last error, its output}; the
--   children were added unless the state is final
local parent = ARGV[2]
allow_when_full()
local key = task(parent)
local f = redis.call('HMGET', key, 'state', 'last_error', 'output')
local state = f[1] or '-'
if state == '-' or final[state] then
  return { state, f[2] or '', f[3] or '' }
end
redis.call('HSET', key, 'children', '1')
for i = 3, #ARGV do
  redis.call('SADD', ours .. 'children:' .. parent, ARGV[i])
end
return { state, '', '' }
