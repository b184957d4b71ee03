-- Sets when workers ask for held keys again.
--
-- KEYS[1] held_keys
-- ARGV[1] queue   ARGV[2] '1' = all of them now, a thousand at a time
-- ARGV[3...] key, in how many ms; a key without held jobs is left out
-- returns what due_held_keys returns
local held_keys_key = KEYS[1]
local all = ARGV[2]
allow_when_full()
if all == '1' then
  make_held_keys_due()
end
for i = 3, #ARGV, 2 do
  if not redis.call('ZSCORE', ours .. 'turns', ARGV[i]) then
    redis.call('ZADD', held_keys_key, 'XX', int(now + tonumber(ARGV[i + 1])), ARGV[i])
  end
end
return due_held_keys()
