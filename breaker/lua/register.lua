-- register: an instance reports that it is alive and how many calls it makes at once at
-- most, or (with 0 ms) that it has ended. This is also the maintenance: it forgets idle
-- keys, and repairs the list of changes if that was lost alone.
--
-- KEYS, ARGV 1…10: arguments.lua
-- ARGV  11  calls at once   12  for how long this holds, ms   13  configured caps, as :caps
--       14  configured declared limit, as :rates   15  that of keys, as :key-rates
-- Returns {"registered", calls at once of all instances}

local calls, valid, own_caps, own_rates, own_key_rates = ARGV[11], tonumber(ARGV[12]), ARGV[13], ARGV[14], ARGV[15]

prepare()
read_clock()
local sum = 0
if valid == 0 then
  redis.call('HDEL', INSTANCES, INSTANCE)
else
  redis.call('HSET', INSTANCES, INSTANCE, calls .. ' ' .. int(math.ceil(now + valid)))
end
local instances = redis.call('HGETALL', INSTANCES)
for i = 1, #instances, 2 do
  local can, expiry = string.match(instances[i + 1], '^(%d+) (%d+)$')
  if number(expiry) > now then
    sum = sum + number(can)
  else
    redis.call('HDEL', INSTANCES, instances[i])
  end
end
redis.call('PEXPIRE', INSTANCES, '3600000')
version, capacity = number(redis.call('HGET', NOTCLOSED, VERSION)), sum
if sum == 0 then
  redis.call('HDEL', NOTCLOSED, CAPACITY, CAPS, RATES, KEY_RATES)
  if version == 0 then
    redis.call('HDEL', NOTCLOSED, ORIGIN) -- of a breaker that was never used
    redis.call('DEL', STAMP)
  end
else
  redis.call('HSET', NOTCLOSED, CAPACITY, int(sum))
  if valid > 0 then
    if own_caps == '0 0' and own_rates == '' and own_key_rates == '' then
      redis.call('HDEL', NOTCLOSED, CAPS, RATES, KEY_RATES)
    else
      redis.call('HSET', NOTCLOSED, CAPS, own_caps, RATES, own_rates, KEY_RATES, own_key_rates)
    end
  end
  write_stamp(origin())
end
forget_idle(100)
if redis.call('EXISTS', CHANGES) == 0 then
  local listed = redis.call('HGETALL', NOTCLOSED)
  for i = 1, #listed, 2 do
    local revision = string.match(listed[i + 1], '"revision":(%d+)')
    if revision then
      redis.call('ZADD', CHANGES, revision, listed[i])
    end
  end
end
return { 'registered', int(sum) }
