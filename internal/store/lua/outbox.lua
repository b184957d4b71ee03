-- Reads what a parent that has ended has to tell to some of its children.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3] how many children at most
-- returns {the parent's state ('-' if there is none any more), its last error, when
--   it ended in unix ms, child, ...}. A parent that runs again has nothing to tell, and one without
--   children has told it all: both leave the outbox
local key = task(ARGV[2])
local f = redis.call('HMGET', key, 'state', 'last_error', 'ended_at')
local state = f[1] or '-'
local final = state == '-' or state == 'completed' or state == 'failed' or state == 'cancelled' or state == 'expired'
local children = {}
if final then
  children = redis.call('SRANDMEMBER', ours .. 'children:' .. ARGV[2], ARGV[3])
end
if #children == 0 then
  redis.call('ZREM', ours .. 'outbox', ARGV[2])
  if final and state ~= '-' then
    redis.call('HDEL', key, 'children')
  end
end
return { state, f[2] or '', f[3] or '', unpack(children) }
