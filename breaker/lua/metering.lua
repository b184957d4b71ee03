-- metering: calls in flight, counted while a slow start, a low budget or a cap limits them.

local JOIN_WITHIN = 30000       -- ms within which every instance reports its calls that are not metered
local ASK_AGAIN = 1000          -- ms after which a call that a full cap has refused asks again at the latest
local WAITS_FOR = 5000          -- ms that an instance counts as waiting after it has asked

-- lease_ends is the score of a call whose lease begins now: the last ms of it, and in its fraction, in 64ths, the binary
-- logarithm of its length, rounded up to a 64th.
local function lease_ends(length)
  return int(math.ceil(now + length) - 1) .. string.format('.%06d', math.ceil(math.log(length) / math.log(2) * 64) * 1000000 / 4096)
end

-- over says that a lease of a length in ms, which ended at an instant, is over: its process has died. If the clock was set
-- forward since it began, its time is counted from then on. named.steady is since when, ms, the clock has agreed with the
-- caller's own, and named.by its latest plausible time now. A caller that does not send them concludes
-- no death.
local function over(ends, length)
  local steady = tonumber(named.steady)
  if not steady or now > number(named.by) then
    steady = now
  end
  return ends <= now and (ends - length >= steady - 2000 or now >= steady + length)
end

-- in_flight is the number of metered calls. One whose lease is over does not count. A lease begins anew if more of it
-- is left than its length: the clock must have gone back. Those of instances with longer ones than the caller's are
-- looked at, too; at_cap also shorter ones, of the 100 that end last.
local function in_flight(b, at_cap)
  local ended, dead = redis.call('ZRANGEBYSCORE', b.inflight_key, '-inf', int(math.floor(now)), 'WITHSCORES', 'LIMIT', '0', '1000'), {}
  for i = 1, #ended, 2 do
    local ends = tonumber(ended[i + 1])
    if over(ends, 2 ^ (ends % 1 * 64)) then
      dead[#dead + 1] = ended[i]
    end
  end
  if #dead > 0 then
    redis.call('ZREM', b.inflight_key, unpack(dead, 1, math.min(#dead, 100)))
  end
  local lease = number(named.lease)
  local long = at_cap and redis.call('ZREVRANGE', b.inflight_key, '0', '99', 'WITHSCORES') or
    lease > 0 and redis.call('ZRANGEBYSCORE', b.inflight_key, '(' .. int(math.ceil(now + 2 * lease)), '+inf', 'WITHSCORES', 'LIMIT', '0', '100') or {}
  for i = 1, #long, 2 do
    local ends = tonumber(long[i + 1])
    local length = 2 ^ (ends % 1 * 64) -- 1: noted by an earlier version
    if length > 1 and ends > now + length then
      redis.call('ZADD', b.inflight_key, lease_ends(length), long[i])
    end
  end
  return redis.call('ZCARD', b.inflight_key) - math.max(0, #dead - 100)
end

-- meter counts a call in until the end of its lease.
local function meter(b, token, lease)
  prepare()
  if b.ramp == 1 then
    b.pace_gap, b.dirty = math.max(0, math.floor(now) - b.pace_from), true
  end
  redis.call('ZADD', b.inflight_key, lease_ends(lease), token)
  redis.call('PEXPIRE', b.inflight_key, int(KEY_KEPT)) -- long: a clock that is set forward must not end it
end

-- cap is how many calls may be in flight in the fleet: the configured number or the learned
-- one, whichever is smaller. 0 is no limit.
local function cap(b)
  local configured = number(given(b.key and 'key_cap' or 'cap'))
  local learned = b.forced == '' and b.learned_cap or 0
  if configured == 0 or learned > 0 and learned < configured then
    return learned
  end
  return configured
end

-- full says that the cap is reached, and notes that the instance waits for a slot.
local function full(b)
  local most = cap(b)
  if most == 0 or in_flight(b) < most - reserved(most) then
    return false
  end
  in_flight(b, true)
  if INSTANCE ~= '' then
    prepare()
    local leaves = reserved(most) > 0 and ' ' .. named.leave or ''
    redis.call('ZADD', b.waiting_key, int(math.floor(now)), INSTANCE .. leaves)
    redis.call('PEXPIRE', b.waiting_key, int(WAITS_FOR))
  end
  return true
end

-- keeps says that an instance that holds a number of slots may keep one of them: it has no more than its share, or no
-- other instance waits.
local function keeps(b, holds)
  local others, most = 0, cap(b)
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', b.waiting_key, int(math.ceil(now - WAITS_FOR)), '+inf', 'LIMIT', '0', '1000')) do
    if string.match(one, '^%S+') ~= INSTANCE then
      others = others + 1
    end
  end
  return in_flight(b) <= most and (others == 0 or not b.key and holds <= math.floor(most / (others + 1)))
end

-- end_call removes a metered call, and wakes as many waiting instances as there are slots, the
-- one first that asked first, unless what is left is reserved: the caller's by b.woken. It returns whether
-- the call was metered.
local function end_call(b, token)
  if redis.call('ZREM', b.inflight_key, token) == 0 then
    return false
  end
  if redis.call('EXISTS', b.waiting_key) == 1 then
    redis.call('ZREMRANGEBYSCORE', b.waiting_key, '-inf', int(math.floor(now - WAITS_FOR)))
    local most = cap(b)
    local slots = most > 0 and most - in_flight(b) or redis.call('ZCARD', b.waiting_key)
    local others, at = {}, 0
    while slots > 0 and at < 1000 do
      local one = redis.call('ZRANGE', b.waiting_key, int(at), int(at))[1]
      local id, leaves = string.match(one or '', '^(%S+) ?(%S*)$')
      if not id then
        break
      elseif slots <= reserved(most, leaves) then
        at = at + 1
      else
        slots = slots - 1
        redis.call('ZREM', b.waiting_key, one)
        if id == INSTANCE then
          b.woken = true
        else
          others[#others + 1] = id
        end
      end
    end
    if #others > 0 then
      redis.call('PUBLISH', CHANNEL, '{"origin":' .. cjson.encode(origin()) .. ',"name":' .. cjson.encode(b.name) ..
        ',"wake":' .. cjson.encode(others) .. '}')
    end
  end
  return true
end

-- woken_here says which breakers have a slot for the calling instance, which waits for one.
local function woken_here(parent, child)
  return (parent.woken and 'slot ' or '') .. (child and child.woken and 'key-slot' or '')
end

-- limits says that instances wait for a change of the record before they ask again.
local function limits(b)
  return b.ramp > 0 or b.metered > 0 or b.confirming > 0
end

-- join notes how many calls of this instance are in flight that began before the breaker
-- metered them, if the script was given that. sequence orders the notes of an instance. Returns
-- true if that may let another call start: fewer are in flight than were assumed.
local function join(b)
  local sequence, count = given('sequence'), given(b.key and 'key_calls' or 'calls')
  if b.metered == 0 or INSTANCE == '' or sequence == '' or count == '' then
    return false
  end
  local noted = redis.call('HGET', b.joined_key, INSTANCE)
  if noted and number(string.match(noted, '^%d+')) >= tonumber(sequence) then
    return false
  end
  prepare()
  redis.call('HSET', b.joined_key, INSTANCE, sequence .. ' ' .. count)
  redis.call('PEXPIRE', b.joined_key, int(IDLE_AFTER))
  local was = noted and string.match(noted, '%d+$') or
    string.match(redis.call('HGET', INSTANCES, INSTANCE) or '', '^%d+')
  return number(was) > tonumber(count)
end

-- unmetered is how many calls may be in flight that are not metered: what the instances have
-- reported, and for JOIN_WITHIN the capacity of instances that have not.
local function unmetered(b)
  local joined, sum = {}, 0
  local early = now - b.metered < JOIN_WITHIN
  local flat = redis.call('HGETALL', b.joined_key)
  for i = 1, #flat, 2 do
    joined[flat[i]] = number(string.match(flat[i + 1], '%d+$'))
  end
  local instances = redis.call('HGETALL', INSTANCES)
  for i = 1, #instances, 2 do
    local can, expiry = string.match(instances[i + 1], '^(%d+) (%d+)')
    if number(expiry) > now then
      sum = sum + (joined[instances[i]] or early and number(can) or 0)
    end
  end
  return sum
end

-- low is the budget from which on calls are metered: as many as can start before all
-- instances know, and as many again.
local function low()
  return 2 * math.max(1, capacity)
end

-- refusal is why no further call may start in a CLOSED breaker, and the ms after which to ask
-- again at the latest; nil if one may.
local function refusal(b)
  if full(b) then
    return 'concurrency', ASK_AGAIN
  end
  if not limits(b) then
    return nil
  end
  local metered = in_flight(b)
  if b.ramp > 0 and metered >= b.ramp then
    return 'slow_start', 1000
  end
  if b.pace > 0 and b.pace_from + b.pace > now then
    return 'slow_start', math.ceil(b.pace_from + b.pace - now)
  end
  local ends = b.budget_reset > 0 and b.budget_reset - now <= 1000
  if b.metered > 0 and b.budget_left - metered - unmetered(b) < 1 + (ends and 0 or reserved(b.budget_limit)) then
    local left = b.budget_reset > 0 and b.budget_reset - now or 1000
    return 'budget', math.max(1, math.min(left, 1000))
  end
  return nil
end

-- decide returns what the rules need. What is added is, for each permit of a list, "k" if its report was counted
-- before, "m" and "c" if the destination's and the key's meter has the call; then calls in flight of both, the capacity,
-- and the events of learn.lua. name is the name of the breaker for which time has done something.
local function decide(parent, child, result, permits, emitted, name)
  local facts = {}
  for token in string.gmatch(permits or '', '%S+') do
    facts[#facts + 1] = '=' .. (redis.call('ZSCORE', REPORTS, token) and 'k' or '') ..
      (redis.call('ZSCORE', parent.inflight_key, token) and 'm' or '') ..
      (child and redis.call('ZSCORE', child.inflight_key, token) and 'c' or '')
  end
  return reply(result, parent, child, name, table.concat({ table.concat(facts), int(in_flight(parent)),
    int(child and in_flight(child) or 0), int(capacity), emitted or '' }, ' '))
end
