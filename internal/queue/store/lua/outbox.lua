-- Reads how a parent finished, and some of the children to release or cancel.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3] how many children at most
-- returns {the parent's state ('-' if it does not exist any more), its last error, when
--   it finished in unix ms, its output, child, ...}. A parent that waits or runs again, and one without
--   children, leave the outbox
local parent, max = ARGV[2], ARGV[3]
local key = task(parent)
local f = redis.call('HMGET', key, 'state', 'last_error', 'ended_at', 'output')
local state = f[1] or '-'
local ended = state == '-' or final[state]
local children = {}
if ended then
  children = redis.call('SRANDMEMBER', ours .. 'children:' .. parent, max)
end
if #children == 0 then
  redis.call('ZREM', ours .. 'outbox', parent)
  if ended and state ~= '-' then
    redis.call('HDEL', key, 'children')
  end
end
return { state, f[2] or '', f[3] or '', f[4] or '', unpack(children) }
