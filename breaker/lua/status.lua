-- status: reads one breaker in full and changes nothing.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude (4…10 unused)
-- Returns result "status"; what is added is the rate by which calls were made of late, as
-- "interval burst arrival", µs: of several the largest, which they keep together. ''
-- is none

local parent, child = read_breakers()
local shortest, rate = math.huge, ''
local stored = redis.call('HGETALL', KEYS[8])
for i = 1, #stored, 2 do
  local interval, burst = rate_of(stored[i])
  local at = number(stored[i + 1])
  if at > now_us + burst * interval + 1 then
    at = now_us -- the clock went back
  end
  if interval < shortest then
    shortest, rate = interval, stored[i] .. ' ' .. int(math.max(at, now_us))
  end
end
return { 'status', int(now_us), int(version), '', rate, record(parent), child and record(child) or '' }
