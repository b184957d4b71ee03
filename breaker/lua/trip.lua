-- trip: an operator opens the breaker.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- ARGV  11  for how long, ms; 0 is until it is reset
--       12  reason, free text
-- Result "tripped"

local length, reason = tonumber(ARGV[11]), ARGV[12]
local parent, child = read_breakers()
local b = child or parent
open(b, 'manual', length > 0 and length or nil)
b.reason, b.tripped_by = reason, CALLER
return finish('tripped', parent, child)
