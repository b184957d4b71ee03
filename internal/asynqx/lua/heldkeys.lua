-- Says when held keys are to be asked for.
--
-- KEYS[1] heldkeys
-- ARGV[1] queue   ARGV[2] '1' = all of them now: a thousand at a time
-- ARGV[3...] key, in how many ms; of those that have held jobs
-- returns those that are due then; see due_keys
also_when_full()
if ARGV[2] == '1' then
  all_due()
end
for i = 3, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], 'XX', int(now + tonumber(ARGV[i + 1])), ARGV[i])
end
return due_keys()
