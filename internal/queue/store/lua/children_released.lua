-- Removes children that parent_ended.lua has handled from their parent. The last one takes
-- the parent out of the outbox. If the parent has been retried meanwhile, none is removed:
-- the children may wait for it again. The record keeps the names of up to 50.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3] when it ended, as outbox.lua said
-- ARGV[4...] children, as '<queue> <id>'
-- returns how many are left
local parent, ended_at = ARGV[2], ARGV[3]
if (redis.call('HGET', task(parent), 'ended_at') or '') ~= ended_at then
  return 0
end
local set = ours .. 'children:' .. parent
for i = 4, #ARGV do
  redis.call('SREM', set, ARGV[i])
end
-- Keep some of the children for users, if the parent has a record.
if ended_at ~= '' then
  local kept = redis.call('HGET', task(parent), 'notified') or ''
  local _, lines = string.gsub(kept, '\n', '')
  for i = 4, math.min(#ARGV, 4 + 49 - lines) do
    if not string.find('\n' .. kept, '\n' .. ARGV[i] .. '\n', 1, true) then
      kept = kept .. ARGV[i] .. '\n'
    end
  end
  redis.call('HSET', task(parent), 'notified', kept)
end
local left = redis.call('SCARD', set)
if left == 0 then
  redis.call('ZREM', ours .. 'outbox', parent)
  redis.call('HDEL', task(parent), 'children')
end
return left
