-- trip: an operator opens the breaker.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude (6…10 unused)
--       11  for how long, ms; 0 is until it is reset
--       12  reason, free text
-- Returns result "tripped"

local length = tonumber(ARGV[11])
local parent, child = read_breakers()
local b = child or parent
open(b, 'manual', length > 0 and length or nil)
b.reason, b.tripped_by = ARGV[12], WHO
return finish('tripped', parent, child)
