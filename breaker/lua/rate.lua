-- rate: the configured rates, by the generic cell rate algorithm: burst calls at once, then
-- one per interval. A rate is named "interval burst", the interval in µs.

local RATE_KEPT = 60000000 -- µs that a rate is kept that no worker asks by

-- rate_of is the interval, µs, and the burst of a rate.
local function rate_of(name)
  local interval, burst = string.match(name, '^(%S+) (%S+)$')
  return tonumber(interval), tonumber(burst)
end

-- each_rate calls visit with the name, interval and burst of each rate that workers call by,
-- and its arrival time: now where the clock went back.
local function each_rate(visit)
  local stored = redis.call('HGETALL', RATES)
  for i = 1, #stored, 2 do
    local interval, burst = rate_of(stored[i])
    local at = number(stored[i + 1])
    if at > now_us + burst * interval + 1 then
      at = now_us
    end
    visit(stored[i], interval, burst, at)
  end
end

-- ask_rate returns 'rate' and the ms until the next call, or nil, 'rate' and a function that
-- takes the call. While workers disagree on the rate, each of their rates counts all calls and
-- lets through its own workers' calls alone: together they keep the largest.
local function ask_rate(own)
  local rates, used = { [own] = false }, 0 -- rate -> arrival time; calls that another one counts now
  each_rate(function(name, interval, burst, at)
    rates[name] = at
    used = math.max(used, math.min((at - now_us) / interval, burst))
  end)
  local interval, burst = rate_of(own)
  local function write()
    prepare()
    local longest = 0
    for name, at in pairs(rates) do
      if at < now_us - RATE_KEPT then
        redis.call('HDEL', RATES, name)
      else
        redis.call('HSET', RATES, name, int(math.floor(at)))
        longest = math.max(longest, at - now_us)
      end
    end
    redis.call('PEXPIRE', RATES, int(math.ceil((longest + RATE_KEPT) / 1000)))
  end
  if not rates[own] then
    rates[own] = now_us + math.min(used, burst) * interval
    if used > 0 then
      write() -- or it would begin anew each time
    end
  end
  rates[own] = math.max(rates[own], now_us)
  local early = rates[own] - (burst - 1) * interval - now_us
  if early > 0 then
    return 'rate', math.ceil(early / 1000)
  end
  return nil, 'rate', function()
    for name, at in pairs(rates) do
      if at >= now_us - RATE_KEPT then
        local every, at_once = rate_of(name)
        rates[name] = math.min(math.max(at, now_us) + every, now_us + at_once * every)
      end
    end
    write()
  end
end
