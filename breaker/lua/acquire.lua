-- acquire: asks for a permit, under the destination and under the key if there is one. In HALF_OPEN one caller of the
-- whole fleet gets the probe's lease. A CLOSED breaker meters the call in slow start and while the
-- budget is low; with a cap any breaker does. Everything is granted or nothing, also of all windows of
-- declared limits.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- named
--   permit    its token; asking again with it answers the same, and takes the cost once more
--   lease     its length, ms, and probe_lease the length for a probe or a call in slow start, if that is shorter
--   counted   the call counts as in flight in any case
--   sequence, calls, key_calls  calls of this instance in flight that are not metered, of the
--             destination and of the key
--   rates, key_rates  declared limits of the destination and of the key, as in rate.lua
--   bounds, key_bounds  of their fixed windows
--   cost      what the call takes of each window, 1 if it is left out
--   limits    named limits that it draws on, see limits.lua
--   have, key_have, at  what the permit has taken already of the destination's and of the key's
--             windows, and when, µs; the rest is taken, or what is too much given back
--   limits_only  the permit is granted but for that
--   cap, key_cap  configured calls in flight in the fleet, and of the key
--   key_only  for a permit under the key only: the token has the destination's
--   more      tokens of further permits, as many as can be granted, while nothing but caps and declared
--             limits of the destination counts calls
--   lead, within  by declared limits in how many µs from now a call begins at the earliest and at the
--             latest; 0 is at once
--   renews    the number of slots of the destination that this instance holds; the call has one of them, and asks for a
--             new lease, for the calls after it
--   confined  the caller leaves the destination's probe and slow start to others until its record has not changed for a lease
--   leave     per cent of each limit that the call leaves to more urgent ones
--   rate_only to count one more call of a permit: in the rate, and in a budget that is low
-- Result
--   "closed"   no lease is needed; what is added is "rate" and "key-rate" if the limits have
--              counted it
--   "granted"  what is added says what: "probe", "counted" and "test" (counted, and alone to show whose a limit is)
--              for the destination, "key-probe" and so on for the key, and the above. Behind a ";" is, for each
--              permit, in how many µs its call may begin
--   "denied"   by the name; what is added is why (open, probe, slow_start, budget, concurrency
--              or rate) and for how many ms asking again is of no use (0 is unknown), of rate also
--              the window, and "reserved" if what it has is; of a named limit "-" without a window, and "limit=NAME"
--   "decide"   time has done something, such as end a cooldown: the rules are asked first. See metering.lua
--   "bounds"   the fixed windows are of another time: ask again with the present ones

local token, lease, cost = given('permit'), number(named.lease), math.max(1, number(named.cost))
local probe_lease = number(named.probe_lease or lease)
local have, key_have, at = number(named.have), number(named.key_have), number(named.at)
local limits_only = given('limits_only') ~= ''
local LEAVES_TEST = 250 -- ms
local key_only, rate_only = given('key_only') ~= '', given('rate_only') ~= ''

-- to_decide says that time has done something: the rules are asked first.
local function to_decide(b)
  if b.due then
    return true
  elseif b.forced == 'closed' then
    return false
  elseif b.state == 'OPEN' then
    return now >= b.open_until and not until_reset(b)
  elseif b.state == 'HALF_OPEN' then
    return b.probe_token ~= '' and b.probe_token ~= token and over(b.probe_until, b.probe_until - b.probe_started)
  end
  local ended = b.metered > 0 and (b.budget_left < 1 or b.budget_reset > 0 and now >= b.budget_reset)
  for reset in string.gmatch(b.metered > 0 and b.windows or '', '%S+ %d+ (%d+) %d+') do
    ended = ended or number(reset) > 0 and now >= number(reset)
  end
  return ended or not LEARN and b.learned_since + b.learned_cap > 0 or b.pace > 0 and given(b.key and 'key_rates' or 'rates') ~= ''
end

-- ask, for a token, returns the reason and the duration of a refusal; or nil, the name of what the call
-- takes, and a function that takes it; or nothing.
local function ask(b, token)
  local forced = b.forced == 'closed'
  if given('confined') ~= '' and not b.key and not forced and (b.state == 'HALF_OPEN' or b.ramp > 0 or b.confirming > 0) then
    if now < b.updated_at + probe_lease then
      return b.state == 'HALF_OPEN' and 'probe' or 'slow_start', ASK_AGAIN
    elseif b.ramp > 0 then -- nobody else calls: the slow start holds nothing back
      b.ramp, b.ramp_ok, b.step, b.dirty = 0, 0, b.step + 1, true
    end
  end
  if forced or b.state == 'CLOSED' then
    join(b)
    local has = redis.call('ZSCORE', b.inflight_key, token)
    if given('renews') ~= '' then
      if not has or limits(b) or learn.on(b) or not keeps(b, number(named.renews)) then
        return 'concurrency', ASK_AGAIN
      end
      return nil, 'counted', function() meter(b, token, lease) end
    elseif has then
      return nil, 'counted', function() end
    end
    local why, wait
    if not forced then
      why, wait = refusal(b)
      if not why then
        why, wait = learn.refusal(b)
      end
    elseif full(b) then
      why, wait = 'concurrency', ASK_AGAIN
    end
    if why then
      return why, wait
    end
    if (forced or not limits(b) and not learn.on(b)) and cap(b) == 0 and given('counted') == '' then
      return nil
    end
    return nil, b.confirming > 0 and 'test' or 'counted', function()
      if given('counted') ~= '' then
        in_flight(b) -- which removes those whose lease has ended
      end
      meter(b, token, (b.ramp > 0 or b.confirming > 0) and cap(b) == 0 and probe_lease or lease)
      if b.confirming > 0 then -- the call is the one that confirms the limit
        b.probe_token, b.step, b.dirty = token, b.step + 1, true
      end
    end
  end
  if b.state == 'OPEN' or given('renews') ~= '' then
    return 'open', until_reset(b) and 0 or math.ceil(b.open_until - now)
  end
  if b.probe_token == token then
    return nil, 'probe', function() end
  end
  if b.probe_token ~= '' then
    return 'probe', now < b.probe_until and math.ceil(b.probe_until - now) or ASK_AGAIN
  end
  if now < b.probe_after then
    return 'probe', math.ceil(b.probe_after - now)
  end
  if full(b) then
    return 'concurrency', ASK_AGAIN
  end
  return nil, 'probe', function()
    b.probe_token, b.probe_by, b.step, b.dirty = token, CALLER, b.step + 1, true
    b.probe_started, b.probe_until, b.probe_after = math.floor(now), math.ceil(now + probe_lease), 0
    took_part(b)
    if cap(b) > 0 then
      meter(b, token, lease)
    end
  end
end

-- again returns why there must be no second call of a permit; nil and a function that takes the
-- first one from the budget.
local function again(b)
  if b.state ~= 'CLOSED' or b.forced ~= '' or b.metered == 0 then
    return nil, function() end
  end
  if b.budget_left - in_flight(b) - unmetered(b) < 1 then
    return 'budget ' .. ASK_AGAIN
  end
  return nil, function()
    b.budget_left, b.step, b.dirty = math.max(0, b.budget_left - 1), b.step + 1, true
    b.windows = string.gsub(b.windows, '(%S+) (%d+) (%d+ %d+)', function(id, left, rest)
      return id .. ' ' .. int(math.max(0, number(left) - 1)) .. ' ' .. rest
    end)
  end
end

-- further grants further permits, one after the other, and adds when their calls may begin.
local function further(b, declared, starts)
  if b.state ~= 'CLOSED' or b.forced ~= '' or limits(b) or learn.on(b) then
    return
  end
  for other in string.gmatch(given('more'), '%S+') do
    local refused, counts, take_it = ask(b, other)
    local start = not refused and declared_rate.start_of(declared)
    if not start then
      return
    end
    if counts then
      take_it()
    end
    take_limits(declared, start)
    starts[#starts + 1] = int(start - now_us)
  end
end

-- leaves_test says that a key that was refused last leaves a call that decides for all keys to another one, for a time.
local function leaves_test(parent, child)
  return parent.all_at > parent.all_over and (parent.state == 'HALF_OPEN' or parent.confirming > 0) and
    (child.failures > 0 or child.state ~= 'CLOSED') and now < parent.updated_at + LEAVES_TEST
end

local parent, child = read_breakers()
local flags, takes = {}, {}
local function need(b, prefix)
  if to_decide(b) then
    return decide(parent, child, 'decide', '', '', b.name)
  end
  local why, wait, take = ask(b, token)
  if why then
    return finish('denied', parent, child, b.name, why .. ' ' .. int(wait))
  end
  if wait then
    flags[#flags + 1] = prefix .. wait
    takes[#takes + 1] = take
  end
end

local denied = nil
for _, b in ipairs(rate_only and { parent, child } or {}) do
  if to_decide(b) then
    return decide(parent, child, 'decide', '', '', b.name)
  end
  local why, take = again(b)
  if why then
    return finish('denied', parent, child, b.name, why)
  end
  takes[#takes + 1] = take
end
if not key_only and not rate_only and not limits_only then
  denied = need(parent, '')
end
if not denied and child and not rate_only and not limits_only then
  denied = leaves_test(parent, child) and finish('denied', parent, child, child.name, 'probe ' .. LEAVES_TEST) or need(child, 'key-')
end
if denied then
  return denied
end
local drawn = named_limits.read()
local full_limit = not rate_only and named_limits.full(drawn, token)
if full_limit then
  return finish('denied', parent, child, parent.name, full_limit)
end
local declared, start, name, why = ask_limits(have ~= cost and parent, key_have ~= cost and child, cost, have, key_have, at, drawn)
if not declared then
  return finish(start, parent, child, name, why)
end
for _, take_it in ipairs(takes) do
  take_it()
end
local result = #flags > 0 and 'granted' or 'closed'
for _, limit in ipairs(declared) do
  if not limit.b.label then
    flags[#flags + 1] = limit.b.key and 'key-rate' or 'rate'
  end
end
if not rate_only then
  named_limits.take(drawn, token, lease)
end
take_limits(declared, start)
flags[#flags + 1] = ';'
flags[#flags + 1] = int(start - now_us)
further(parent, declared, flags)
for _, limit in ipairs(declared) do
  write_limits(limit)
end
return finish(result, parent, child, '', table.concat(flags, ' '))
