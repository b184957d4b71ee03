-- trip: an operator opens the breaker.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude (5…7 unused)
--       8   for how long, ms; 0 is until it is reset
--       9   reason, free text
-- Returns result "tripped"

local length = tonumber(ARGV[8])
local b = read_breaker()
open(b, 'manual', length > 0 and length or nil)
b.reason, b.tripped_by = ARGV[9], WHO
return finish(b, 'tripped')
