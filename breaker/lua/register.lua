-- register: an instance reports that it is alive and how many calls it makes at once at
-- most, or (with 0 ms) that it has ended. This is also the maintenance: it forgets idle
-- keys, and repairs the list of changes if that was lost alone, in parts.
--
-- KEYS, ARGV 1…7: arguments.lua
-- ARGV  8  calls at once   9  for how long this holds, ms   10  configured caps, as :caps
--       11  configured declared limit, as :rates   12  the limit of keys, as :key-rates   13  named limits, as :limits
--       14  as :reserve   15  "1": others make its calls; 10 to 14 count while only such instances are registered
-- Returns {"registered", calls at once of all instances, "1" if the list of changes lacks some: register again}

local RELISTING, RELISTED = ':relisting', '1000' -- breakers that one call puts into the list, about

local calls, valid, own_caps, own_rates, own_key_rates, own_limits = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local own_reserve, remote, workers = ARGV[14], ARGV[15] == '1', false

prepare()
read_clock()
local sum = 0
if valid == 0 then
  redis.call('HDEL', INSTANCES, INSTANCE)
else
  redis.call('HSET', INSTANCES, INSTANCE, calls .. ' ' .. int(math.ceil(now + valid)) .. (remote and ' remote' or ''))
end
local instances = redis.call('HGETALL', INSTANCES)
for i = 1, #instances, 2 do
  local can, expiry, kind = string.match(instances[i + 1], '^(%d+) (%d+) ?(%a*)$')
  if number(expiry) > now then
    sum, workers = sum + number(can), workers or kind == ''
  else
    redis.call('HDEL', INSTANCES, instances[i])
  end
end
redis.call('PEXPIRE', INSTANCES, '3600000')
version, capacity = number(redis.call('HGET', NOTCLOSED, VERSION)), sum
if sum == 0 then
  redis.call('HDEL', NOTCLOSED, CAPACITY, CAPS, RATES, KEY_RATES, LIMITS, RESERVE)
  if version == 0 then
    redis.call('HDEL', NOTCLOSED, ORIGIN) -- of a breaker that was never used
    redis.call('DEL', STAMP)
  end
else
  redis.call('HSET', NOTCLOSED, CAPACITY, int(sum))
  if valid > 0 and not (remote and workers) then
    if own_caps == '0 0' and own_rates == '' and own_key_rates == '' then
      redis.call('HDEL', NOTCLOSED, CAPS, RATES, KEY_RATES)
    else
      redis.call('HSET', NOTCLOSED, CAPS, own_caps, RATES, own_rates, KEY_RATES, own_key_rates)
    end
    if own_limits == '' then
      redis.call('HDEL', NOTCLOSED, LIMITS)
    else
      redis.call('HSET', NOTCLOSED, LIMITS, own_limits)
    end
    if own_reserve == '' then
      redis.call('HDEL', NOTCLOSED, RESERVE)
    else
      redis.call('HSET', NOTCLOSED, RESERVE, own_reserve)
    end
  end
  write_stamp(origin())
end
forget_idle(100)
-- The list has each breaker of NOTCLOSED, which has other fields beside them.
local missing = redis.call('HLEN', NOTCLOSED) - redis.call('ZCARD', CHANGES)
for _, value in ipairs(redis.call('HMGET', NOTCLOSED, VERSION, TRANSITION, CAPACITY, CAPS, RATES, KEY_RATES, LIMITS, RESERVE, FLOOR, ORIGIN, RELISTING)) do
  missing = missing - (value and 1 or 0)
end
local relisting = redis.call('HGET', NOTCLOSED, RELISTING) or missing > 0 and '0'
if relisting then
  local part = redis.call('HSCAN', NOTCLOSED, relisting, 'COUNT', RELISTED)
  version = math.max(version, now_us)
  for i = 1, #part[2], 2 do
    -- As a change that instances have not read: one that read the list since has taken the breaker for CLOSED.
    if string.sub(part[2][i], 1, 1) ~= ':' and redis.call('ZADD', CHANGES, 'NX', int(version + 1), part[2][i]) == 1 then
      version = version + 1
    end
  end
  if part[1] == '0' then
    relisting = nil
    redis.call('HDEL', NOTCLOSED, RELISTING)
  else
    redis.call('HSET', NOTCLOSED, RELISTING, part[1])
  end
  redis.call('HSET', NOTCLOSED, VERSION, int(version))
  write_stamp(origin())
end
return { 'registered', int(sum), relisting and '1' or '0' }
