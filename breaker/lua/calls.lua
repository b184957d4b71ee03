-- calls: what the scripts share that count calls in flight. It stands behind the
-- prelude in acquire, report and join.

local JOIN_WITHIN = 30000 -- ms in which every instance hears that calls are counted

-- counted is how many calls in flight the breaker has counted. Those whose lease
-- has ended are none any more: their process has died.
local function counted(b)
  redis.call('ZREMRANGEBYSCORE', b.inflight_key, '-inf', int(math.floor(now)))
  return redis.call('ZCARD', b.inflight_key)
end

-- join takes note of how many calls of this instance are in flight that were
-- started before the breaker counted; '' says nothing. A note that comes late
-- replaces no later one.
-- It returns whether that may make room: fewer are in flight than were taken to be.
local function join(b, sequence, count)
  if b.metered == 0 or INSTANCE == '' or sequence == '' or (count or '') == '' then
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

-- uncounted is how many calls may be in flight that the breaker has not counted:
-- what the instances said, and all that those can make which said nothing yet. Who
-- says nothing for long has nothing to say, or what it said was lost.
local function uncounted(b)
  local joined, sum = {}, 0
  local early = now - b.metered < JOIN_WITHIN
  local flat = redis.call('HGETALL', b.joined_key)
  for i = 1, #flat, 2 do
    joined[flat[i]] = number(string.match(flat[i + 1], '%d+$'))
  end
  local instances = redis.call('HGETALL', INSTANCES)
  for i = 1, #instances, 2 do
    local can, expiry = string.match(instances[i + 1], '^(%d+) (%d+)$')
    if number(expiry) > now then
      sum = sum + (joined[instances[i]] or early and number(can) or 0)
    end
  end
  return sum
end

-- little is the number of calls left from which on they are counted: as many as
-- can have started before all instances know, and as many again.
local function little()
  return 2 * math.max(1, capacity)
end

-- roll begins a window anew whose end has come. A limit that is small anyway is
-- taken to be whole again; otherwise nothing is counted until little is left.
local function roll(b)
  if b.metered == 0 or b.budget_reset == 0 or now < b.budget_reset then
    return
  end
  b.dirty = true
  if b.budget_limit > 0 and b.budget_limit <= little() then
    b.budget_left, b.budget_reset = b.budget_limit, 0
  else
    clear_budget(b)
  end
end

-- room says why no further call may start in a CLOSED breaker, and how long it
-- takes at most until it is worth asking again; nil if one may.
local function room(b)
  roll(b)
  if b.ramp == 0 and b.metered == 0 then
    return nil
  end
  local flying = counted(b)
  if b.ramp > 0 and flying >= b.ramp then
    return 'slow_start', 1000
  end
  if b.metered > 0 and b.budget_left - flying - uncounted(b) < 1 then
    local left = b.budget_reset > 0 and b.budget_reset - now or 1000
    if b.budget_left < 1 and b.budget_reset > 0 then
      open(b, 'budget', hinted(left))
      return 'open', math.ceil(b.open_until - now)
    end
    return 'budget', math.max(1, math.min(left, 1000))
  end
  return nil
end
