-- done: ends a call that changes nothing but what the meter counts. Otherwise the rules decide, and swap.lua stores that.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- named
--   permits     of reports that the rules decide; nothing is changed
--   permit      its id; a probe's is its token
--   generation  of the permit: the version that its instance knew
--   outcome     "success", "failure", or "neutral" (the call said nothing about the API, or was not made); others are
--               decided by the rules, but what the call has taken is corrected here
--   doubt, outage  as in policy.Event
--   scope       whose limit the API announces: "user" or "global"; "key": for the destination the outcome is neutral
--   learn       limits are learned that the API does not announce; sent: when the call began, µs
--   left, limit calls left, if the API says that, and of a whole window
--   cap, key_cap  configured calls in flight in the fleet, and of the key
--   sequence, calls, key_calls  calls of this instance in flight that are not metered, of the
--               destination and of the key
--   rates, key_rates, cost, key_cost, at  as in release.lua, of a call that was not made (uncalled), and of one
--               that has cost true_cost
--   limits      named limits that it has drawn on, see limits.lua; cost is what it has really cost
--   keep        the call goes on, and its slot stays taken until it is released
-- Result
--   "applied"
--   "decide"     see metering.lua
-- What is added to "applied" is "slot" and "key-slot" if this instance waits for a slot that is free now, and
-- what the rules are to decide of what was counted, see learn.lua.

local id, generation, outcome = given('permit'), number(named.generation), given('outcome')
local left, limit = tonumber(named.left), number(named.limit)

prepare()
local parent, child = read_breakers()
if given('permits') ~= '' then
  return decide(parent, child, 'decide', given('permits'))
end
local owner = child and given('scope') ~= 'global' and child or parent
local both = { parent, child }

-- said is the outcome as it concerns a breaker.
local function said(b)
  return given('scope') == 'key' and not b.key and 'neutral' or outcome
end

-- quiet says that the outcome changes nothing of the breaker but what the meter counts: the rules have not said in watch
-- that they must see it, and it is none that they see always, see breaker/internal/policy/watch.go.
local function quiet(b)
  local outcome = said(b)
  if b.due or outcome == 'limited' or outcome == 'unauthorized' or given('doubt') ~= '' and string.find(b.watch, 'doubt', 1, true) then
    return false
  elseif b.forced == 'closed' then
    return true
  elseif given('outage') ~= '' or b.probe_token == id and (b.state == 'HALF_OPEN' or b.confirming > 0) then
    return false
  elseif b.state ~= 'CLOSED' or outcome == 'neutral' then
    return true
  elseif left and b == owner and generation >= b.generation and (left <= low() or limit > 0 and limit ~= b.budget_limit) then
    return false
  end
  return not string.find(b.watch, outcome, 1, true) and (outcome == 'failure' or b.failures == 0)
end

local drawn, corrected = named_limits.read(), given('uncalled') ~= '' or named.true_cost
if given('keep') == '' then
  named_limits.free(drawn, id)
end
if (corrected or named_limits.corrects(drawn)) and first_time(id .. ' cost') then
  if corrected then
    correct_taken(parent, child, named.true_cost and number(named.true_cost) or 0)
  end
  named_limits.correct(drawn)
end
local all_quiet = given('uncalled') == '' and quiet(parent) and (not child or quiet(child))
for _, b in ipairs(both) do
  b.metered_call = redis.call('ZSCORE', b.inflight_key, id)
  if said(b) == 'success' and b.forced == '' and learn.on(b) and b.probe_token ~= id and
      (b.metered_call and all_quiet or first_time(id .. b.name)) then
    if b.state == 'CLOSED' and generation >= b.generation then
      learn.accepted(b, number(named.sent), in_flight(b) - (b.metered_call and 1 or 0))
    elseif b.metered_call and number(named.sent) > b.round_started then
      learn.count(b, number(named.sent)) -- it began before the breaker opened, and the API has counted it
    end
  end
end
if not all_quiet then
  for _, b in ipairs(both) do
    if b.counted then
      write_counts(b)
    end
  end
  return decide(parent, child, 'decide', id, learn.emitted(parent, child))
end
for _, b in ipairs(both) do
  if given('keep') == '' then
    end_call(b, id)
  end
  if b.state == 'CLOSED' and b.forced == '' then
    join(b)
    if b.metered_call then
      b.dirty = b.dirty or limits(b) -- another call may start
      if b.ramp > 0 and said(b) == 'success' and generation >= b.generation and b.confirming == 0 then
        b.ramp_ok = b.ramp_ok + 1
        b.emitted = b.emitted or b.ramp_ok >= b.ramp and 'grow' or nil
      end
    end
  end
end
return finish('applied', parent, child, '', woken_here(parent, child) .. ' ' .. learn.emitted(parent, child))
