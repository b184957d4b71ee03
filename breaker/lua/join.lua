-- join: an instance that has learned that calls are metered reports how many of its own are
-- in flight that are not.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- named: sequence, calls and key_calls, those calls of the destination and of the key
-- Result "joined"

prepare()
local parent, child = read_breakers()
local b = child or parent
if join(b) then
  b.dirty = true -- another call may start
end
return finish('joined', parent, child)
