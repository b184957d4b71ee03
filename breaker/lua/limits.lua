-- limits: named limits, which destinations share. Each has a slot of its own, and four of the last KEYS:
--   hash: what is used of it, see rate.lua
--   sorted set: its calls in flight, by the end of their lease, see metering.lua
--   sorted set: values of its key, by when one was last asked for, ms
--   hash: instances that wait for a slot, id -> when they first and last asked, ms, and per cent they leave
-- named.limits has a line for each: "name;key;cap;cost;have;at;windows;bounds". cost is what the call takes of it, 0 is
-- nothing (any more), and have what its permit has taken already, at an instant, µs; cap is how many calls may be in
-- flight, 0 is any number.

local named_limits = {
  KEYS_KEPT = 1000, INDEXED = 1000, -- values of a key that are listed; ms between two notes of one
  ASK_AGAIN = 100, WAITS_FOR = 400, -- ms after which an instance asks for a slot again, and that it counts as waiting
}

function named_limits.read()
  local all = {}
  for line in string.gmatch(given('limits'), '[^\n]+') do
    local l = { name = DESTINATION }
    l.limit, l.value, l.cap, l.cost, l.have, l.at, l.rates, l.bounds = string.match(line, '^(.-);(.-);(.-);(.-);(.-);(.-);(.-);(.*)$')
    l.label = l.value == '' and l.limit or l.limit .. '/' .. l.value
    l.cap, l.cost, l.have, l.at = number(l.cap), number(l.cost), number(l.have), number(l.at)
    all[#all + 1] = l
  end
  for i, l in ipairs(all) do
    local at = #KEYS - 4 * (#all - i)
    l.rates_key, l.inflight_key, l.values_key, l.waiting_key = KEYS[at - 3], KEYS[at - 2], KEYS[at - 1], KEYS[at]
  end
  return all
end

-- turn reports whether a free slot is the instance's: instances that have waited longer come first, as the one whose call
-- has just ended would always be the first to ask, but instances that leave more to others do not.
function named_limits.turn(l, free)
  local own, before = nil, 0
  local flat = redis.call('HGETALL', l.waiting_key)
  for i = 1, #flat, 2 do
    if flat[i] == INSTANCE then
      own = number(string.match(flat[i + 1], '^%d+'))
    end
  end
  for i = 1, #flat, 2 do
    local first, last, leaves = string.match(flat[i + 1], '^(%d+) (%d+) ?(%d*)$')
    if number(last) < now - named_limits.WAITS_FOR then
      redis.call('HDEL', l.waiting_key, flat[i])
    elseif flat[i] ~= INSTANCE and number(first) < (own or now) and number(leaves) <= number(named.leave) then
      before = before + 1
    end
  end
  if before < free then
    if own then
      redis.call('HDEL', l.waiting_key, INSTANCE)
    end
    return true
  end
  prepare()
  redis.call('HSET', l.waiting_key, INSTANCE, int(math.floor(own or now)) .. ' ' .. int(math.floor(now)) .. ' ' .. given('leave'))
  redis.call('PEXPIRE', l.waiting_key, int(WAITS_FOR))
  return false
end

-- full returns what a refusal adds if the calls in flight of a limit leave no room for a further one.
function named_limits.full(all, token)
  for _, l in ipairs(all) do
    if l.cap > 0 and l.cost > 0 and not redis.call('ZSCORE', l.inflight_key, token) and not named_limits.turn(l, l.cap - reserved(l.cap) - in_flight(l)) then
      return 'concurrency ' .. named_limits.ASK_AGAIN .. ' - limit=' .. l.label
    end
  end
end

-- free frees the slots of a call. Returns whether it had one.
function named_limits.free(all, token)
  local freed = false
  for _, l in ipairs(all) do
    if l.cap > 0 then
      prepare()
      freed = redis.call('ZREM', l.inflight_key, token) == 1 or freed
    end
  end
  return freed
end

-- take takes the slots of a call, frees the slots of limits on which it does not draw any more, and notes which
-- values the keys of limits have.
function named_limits.take(all, token, lease)
  for _, l in ipairs(all) do
    if l.cost == 0 then
      named_limits.free({ l }, token)
    else
      if l.cap > 0 and not redis.call('ZSCORE', l.inflight_key, token) then
        meter(l, token, lease)
      end
      if l.value ~= '' and now - number(redis.call('ZSCORE', l.values_key, l.value)) >= named_limits.INDEXED then
        prepare()
        local longest = 0
        for length in string.gmatch(l.rates, '/(%d+)') do
          longest = math.max(longest, number(length) / 1000)
        end
        redis.call('ZADD', l.values_key, int(math.floor(now)), l.value)
        redis.call('ZREMRANGEBYRANK', l.values_key, '0', int(-named_limits.KEYS_KEPT - 1))
        redis.call('PEXPIRE', l.values_key, int(math.ceil(longest + 3600000)))
      end
    end
  end
end

-- corrects says that the call has taken something else than it has cost.
function named_limits.corrects(all)
  for _, l in ipairs(all) do
    if l.cost ~= l.have then
      return true
    end
  end
  return false
end

-- correct makes what a permit has taken what the call has cost. Returns whether a limit is stored.
function named_limits.correct(all)
  local stored = false
  for _, l in ipairs(all) do
    if l.cost ~= l.have and l.rates ~= '' and correct(l, l.rates, l.cost - l.have, l.at, l.cost == 0) then
      stored = true
    end
  end
  return stored
end
