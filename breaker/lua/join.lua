-- join: an instance that has learned that calls are metered reports how many of its own are
-- in flight that are not.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- ARGV  11  sequence, 12 and 13 those calls of the destination and of the key
-- Result "joined"

local sequence, calls, key_calls = ARGV[11], ARGV[12], ARGV[13]

prepare()
local parent, child = read_breakers()
local b = child or parent
if join(b, sequence, b.key and key_calls or calls) then
  b.dirty = true -- another call may start
end
return finish('joined', parent, child)
