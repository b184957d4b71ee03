-- reset: an operator closes the breaker, whatever state it is in, and ends a slow
-- start. Reports of calls that started before do not count any more.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- Result
--   "reset"
--   "unchanged"  it was plainly CLOSED

local parent, child = read_breakers()
local b = child or parent
if plain(b) then
  return finish('unchanged', parent, child)
end
local was = b.state
b.forced, b.forced_until, b.level = '', 0, 0
pace.clear(b)
close(b, 'reset')
clear_budget(b)
clear_learned(b)
if was == 'CLOSED' then
  b.ramp = 0
end
return finish('reset', parent, child)
