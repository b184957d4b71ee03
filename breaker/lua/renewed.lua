-- renewed: credentials that the API had refused were renewed. A breaker that is open because of
-- them closes, and its slow start tries them.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- Result
--   "renewed"
--   "unchanged"  no refused credentials hold it

local parent, child = read_breakers()
local b = child or parent
if b.state == 'CLOSED' or b.cause ~= 'credentials' then
  return finish('unchanged', parent, child)
end
close(b, 'renewed')
return finish('renewed', parent, child)
