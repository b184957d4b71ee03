-- renewed: credentials that the API had refused were renewed. A breaker that is open because of
-- them closes, and its slow start tries them.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- named
--   credentials  identifies the new ones; none: not known
-- Result
--   "renewed"
--   "unchanged"  no refused credentials hold it, or just these

local parent, child = read_breakers()
local b = child or parent
if b.state == 'CLOSED' or b.cause ~= 'credentials' or named.credentials and named.credentials == b.credentials then
  return finish('unchanged', parent, child)
end
close(b, 'renewed')
return finish('renewed', parent, child)
