-- force: an operator closes the breaker and keeps it CLOSED, whatever the API
-- answers.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude (6…10 unused)
--       11  for how long, ms; 0 is until it is reset
--       12  reason, free text
-- Returns result "forced"

local length = tonumber(ARGV[11])
local parent, child = read_breakers()
local b = child or parent
close(b, 'forced')
b.ramp = 0
clear_budget(b)
b.forced, b.forced_until = 'closed', length > 0 and math.ceil(now + length) or 0
b.reason, b.tripped_by = ARGV[12], WHO
return finish('forced', parent, child)
