-- metering: calls in flight, counted while a slow start or a low budget limits them.

local JOIN_WITHIN = 30000       -- ms within which every instance reports its calls that are not metered
local SAME_WINDOW = 2000        -- ms by which two announcements of one reset differ
local LONGEST_WINDOW = 86400000 -- ms that a window is taken to last at most

-- in_flight is the number of metered calls. A call whose lease has ended does not count: its
-- process has died.
local function in_flight(b)
  redis.call('ZREMRANGEBYSCORE', b.inflight_key, '-inf', int(math.floor(now)))
  return redis.call('ZCARD', b.inflight_key)
end

-- meter counts a call in until the end of its lease.
local function meter(b, token, lease)
  prepare()
  redis.call('ZADD', b.inflight_key, int(math.ceil(now + lease)), token)
  redis.call('PEXPIRE', b.inflight_key, int(math.ceil(lease + 60000)))
end

-- join notes how many calls of this instance are in flight that began before the breaker
-- metered them; '' is unknown. sequence orders the notes of an instance. Returns true if that
-- may let another call start: fewer are in flight than were assumed.
local function join(b, sequence, count)
  if b.metered == 0 or INSTANCE == '' or (sequence or '') == '' or (count or '') == '' then
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
-- reported, and for JOIN_WITHIN the capacity of those that have not.
local function unmetered(b)
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

-- low is the budget from which on calls are metered: as many as can start before all
-- instances know, and as many again.
local function low()
  return 2 * math.max(1, capacity)
end

-- next_window begins the window after one that has ended. A limit that is always low is taken
-- to be whole again; otherwise metering stops until the budget is low.
local function next_window(b)
  if b.metered == 0 or b.budget_reset == 0 or now < b.budget_reset then
    return
  end
  b.dirty = true
  if b.budget_limit > 0 and b.budget_limit <= low() then
    b.budget_left, b.budget_reset = b.budget_limit, 0
  else
    clear_budget(b)
  end
end

-- refusal is why no further call may start in a CLOSED breaker, and the ms after which to ask
-- again at the latest; nil if one may.
local function refusal(b)
  next_window(b)
  if b.ramp == 0 and b.metered == 0 then
    return nil
  end
  local metered = in_flight(b)
  if b.ramp > 0 and metered >= b.ramp then
    return 'slow_start', 1000
  end
  if b.metered > 0 and b.budget_left - metered - unmetered(b) < 1 then
    local left = b.budget_reset > 0 and b.budget_reset - now or 1000
    if b.budget_left < 1 and b.budget_reset > 0 then
      open(b, 'budget', hinted(left))
      return 'open', math.ceil(b.open_until - now)
    end
    return 'budget', math.max(1, math.min(left, 1000))
  end
  return nil
end

-- spend takes one call from the budget if its answer did not report the budget.
local function spend(b)
  b.budget_left, b.dirty = b.budget_left - 1, true
  if b.budget_left == 0 and b.budget_reset == 0 then
    clear_budget(b) -- the API says no more, and there is no instant to wait for
  end
end

-- note_budget applies the budget that the API reports, and opens until the window is over if
-- that is 0. A window is identified by its end.
local function note_budget(b, left, reset_in, limit)
  local reset = now + math.min(reset_in, math.max(MAX_COOLDOWN, LONGEST_WINDOW))
  local rest = b.budget_reset > now and b.budget_reset or 0
  local other = rest > 0 and reset < rest - SAME_WINDOW
  if other then
    -- Of an earlier window, or of another limit of the API: its call counts in this one, too.
    if b.budget_left > 0 then
      b.budget_left, b.dirty = b.budget_left - 1, true
    end
  elseif rest > 0 and reset <= rest + SAME_WINDOW then
    if left < b.budget_left or reset > rest then
      -- The limit of a sliding window, or of a bucket, is whole later with each call.
      b.budget_left, b.budget_reset, b.dirty = math.min(left, b.budget_left), math.max(rest, math.ceil(reset)), true
    end
  elseif left > low() then
    if b.metered > 0 then
      clear_budget(b)
      b.dirty = true
    end
  else
    if b.metered == 0 then
      redis.call('DEL', b.joined_key)
      b.metered = math.floor(now)
    end
    b.budget_left, b.budget_reset, b.dirty = left, math.ceil(reset), true
  end
  if not other and limit > 0 and limit ~= b.budget_limit then
    b.budget_limit, b.dirty = limit, true
  end
  if b.metered > 0 and b.budget_left < 1 then
    open(b, 'budget', hinted(math.max(reset, b.budget_reset) - now))
  end
end
