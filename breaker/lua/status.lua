-- status: reads one breaker in full and changes nothing.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- Result "status"; what is added is the rate by which calls were made of late, as
-- "interval burst arrival", µs: of several the largest, which they keep together. ''
-- is none

local parent, child = read_breakers()
local shortest, rate = math.huge, ''
each_rate(function(name, interval, _, at)
  if interval < shortest then
    shortest, rate = interval, name .. ' ' .. int(math.max(at, now_us))
  end
end)
return { 'status', int(now_us), int(version), '', rate, record(parent), child and record(child) or '' }
