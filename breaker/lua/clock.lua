-- clock: Redis's time.

local function read_clock()
  if CLOCK ~= '' then
    now_us = tonumber(CLOCK)
  else
    local t = redis.call('TIME')
    now_us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  end
  now = now_us / 1000
end
