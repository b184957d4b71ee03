-- alive: a process with Breakers reports that it is alive, and finds the ones that have died.
--
-- KEYS[1]  sorted set: processes, by until when they count as alive, ms
-- ARGV     1  id of the process   2  for how long it counts as alive, ms
-- Returns {1 if it still counted as alive, else 0, at most 1000 processes that do not, …}

local FORGET_AFTER = 3600000 -- ms; registrations are valid for less

local id, valid = ARGV[1], tonumber(ARGV[2])
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local function int(n)
  return string.format('%.0f', n)
end

-- First: a full Redis accepts it, and then lets the script finish.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now - FORGET_AFTER))
local until_when = redis.call('ZSCORE', KEYS[1], id)
redis.call('ZADD', KEYS[1], int(now + valid), id)
redis.call('PEXPIRE', KEYS[1], int(valid + FORGET_AFTER))
local reply = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', '0', '1000')
table.insert(reply, 1, until_when and tonumber(until_when) > now and '1' or '0')
return reply
