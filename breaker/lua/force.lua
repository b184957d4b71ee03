-- force: an operator closes the breaker and keeps it CLOSED, whatever the API
-- answers.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- ARGV  11  for how long, ms; 0 is until it is reset
--       12  reason, free text
-- Result "forced"

local length, reason = tonumber(ARGV[11]), ARGV[12]
local parent, child = read_breakers()
local b = child or parent
close(b, 'forced')
b.ramp = 0
clear_budget(b)
b.forced, b.forced_until = 'closed', length > 0 and math.ceil(now + length) or 0
b.reason, b.tripped_by = reason, CALLER
return finish('forced', parent, child)
