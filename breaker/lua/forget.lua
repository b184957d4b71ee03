-- forget: an operator forgets the limits that the API announced, and what is learned of others. The state stays, and the history
-- names the operator.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- Result
--   "forgotten"  what is added is the record before
--   "unchanged"  there was nothing to forget

local parent, child = read_breakers()
local b = child or parent
if b.metered == 0 and b.budget_limit == 0 and b.learned_since == 0 and b.spaced == 0 then
  return finish('unchanged', parent, child)
end
local before = record(b)
clear_budget(b)
pace.clear(b)
clear_learned(b)
b.budget_limit, b.dirty = 0, true
b.event = { from = b.state, cause = 'forgotten' }
push(b, b.history_key, event(b), EVENTS_LIMIT)
b.event = nil -- it is no transition: calls in flight still count
return finish('forgotten', parent, child, '', before)
