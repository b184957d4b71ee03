-- Strikes children off that know how their parent has ended. The last one takes
-- the parent out of the outbox.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3...] children, as '<queue> <id>'
-- returns how many are left
local set = ours .. 'children:' .. ARGV[2]
for i = 3, #ARGV do
  redis.call('SREM', set, ARGV[i])
end
local left = redis.call('SCARD', set)
if left == 0 then
  redis.call('ZREM', ours .. 'outbox', ARGV[2])
  redis.call('HDEL', task(ARGV[2]), 'children')
end
return left
