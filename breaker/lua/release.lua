-- release: takes a permit back that made no call. The next probe may start at
-- once, and declared limits count its cost no more. No transition.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- named
--   permit    its token
--   more      tokens of further permits of the same kind; cost is the cost of all then
--   rates, key_rates  declared limits that have counted the call, as in rate.lua
--   cost, key_cost, at  what it took of each window of the destination and of the key, and when, µs
--   limits    named limits that have counted the call, see limits.lua
--   first     the caller knows that this is the first time; otherwise that is given back if the
--             permit held something else
--   key_only  to release the key's part alone
--   cap, key_cap  configured calls in flight in the fleet, and of the key
--   sequence, calls, key_calls  calls of this instance in flight that are not metered, of the
--             destination and of the key; without them they are unknown
-- Result
--   "released"
--   "stale"     the permit held nothing (any more)
-- What is added is "slot" and "key-slot" if this instance waits for a slot that is free now.

local token, first, key_only = given('permit'), given('first') ~= '', given('key_only') ~= ''

prepare()
local result = 'stale'
local parent, child = read_breakers()
for _, b in ipairs({ parent, child }) do
  local mine = b.key or not key_only
  for each in string.gmatch(mine and token .. ' ' .. given('more') or '', '%S+') do
    if end_call(b, each) then
      result, b.dirty = 'released', b.dirty or limits(b)
    end
  end
  if mine and b.state == 'HALF_OPEN' and b.probe_token == token then
    b.probe_token, b.probe_by, b.probe_started, b.probe_until, b.probe_after = '', '', 0, 0, 0
    b.step, b.dirty = b.step + 1, true
    result = 'released'
  end
  if join(b) then
    b.dirty = true -- another call may start
  end
end
local drawn = named_limits.read()
if named_limits.free(drawn, token) then
  result = 'released'
end
if first or result == 'released' then
  local given_back = correct_taken(parent, child, 0)
  if named_limits.correct(drawn) or given_back then
    result = 'released'
  end
end
return finish(result, parent, child, '', woken_here(parent, child))
