-- advance: moves an OPEN breaker whose time has come to HALF_OPEN without
-- a permit. It also writes what reading has repaired: waits that a clock which went
-- backwards made too long, and a lost hash.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- Result
--   "advanced"   it is HALF_OPEN now, by this call
--   "unchanged"  it is not OPEN, or its time has not come

local parent, child = read_breakers()
local b = child or parent
if cooled(b) then
  half_open(b)
  return finish('advanced', parent, child)
end
return finish('unchanged', parent, child)
