-- Strikes children off that know how their parent has ended. The last one takes
-- the parent out of the outbox. Where the parent has been retried meanwhile nobody is
-- struck off: the children may wait for it again. The record keeps the names of up to 50.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3] when it ended, as outbox.lua said
-- ARGV[4...] children, as '<queue> <id>'
-- returns how many are left to be told
if (redis.call('HGET', task(ARGV[2]), 'ended_at') or '') ~= ARGV[3] then
  return 0
end
local set = ours .. 'children:' .. ARGV[2]
for i = 4, #ARGV do
  redis.call('SREM', set, ARGV[i])
end
-- People ask for them later: some of them stay on record, if there is one.
if ARGV[3] ~= '' then
  local kept = redis.call('HGET', task(ARGV[2]), 'told') or ''
  local _, lines = string.gsub(kept, '\n', '')
  for i = 4, math.min(#ARGV, 4 + 49 - lines) do
    if not string.find('\n' .. kept, '\n' .. ARGV[i] .. '\n', 1, true) then
      kept = kept .. ARGV[i] .. '\n'
    end
  end
  redis.call('HSET', task(ARGV[2]), 'told', kept)
end
local left = redis.call('SCARD', set)
if left == 0 then
  redis.call('ZREM', ours .. 'outbox', ARGV[2])
  redis.call('HDEL', task(ARGV[2]), 'children')
end
return left
