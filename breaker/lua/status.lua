-- status: reads one breaker in full and changes nothing.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude (4…10 unused)
-- Returns result "status"

local parent, child = read_breakers()
return { 'status', int(now_us), int(version), '', '', record(parent), child and record(child) or '' }
