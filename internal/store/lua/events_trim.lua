-- Forgets what nobody is to read any more.
--
-- KEYS[1] stream   KEYS[2] wanted   KEYS[3] told
-- ARGV[1] how many entries stay at most   ARGV[2] ms that they stay at most
-- ARGV[3] ms that those stay at most of which callbacks have not been made
-- ARGV[4] how many of these stay at most
-- ARGV[5] how many entries that went at once say that there may be more to drop
-- returns {entries that went (-1: the stream went), those of them of which callbacks had
--   not been made}. Redis drops up to 10,000 at once, of each kind: where it has, there
--   may be more
if redis.call('EXISTS', KEYS[1]) == 0 then
  return { 0, 0 }
end
local told = redis.call('GET', KEYS[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local told_ms, told_seq = string.match(told or '', '^(%d+)-(%d+)$')
told_ms = tonumber(told_ms)
if not told and redis.call('EXISTS', KEYS[2]) == 0 and #redis.call('XINFO', 'GROUPS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  return { -1, 0 }
end

local function drop(by, how, limit)
  return redis.call('XTRIM', KEYS[1], by, how, limit)
end

local function id(ms, seq)
  return string.format('%.0f-%.0f', ms, seq)
end

local most, at_once = tonumber(ARGV[1]), tonumber(ARGV[5])
local oldest, behind = now - tonumber(ARGV[2]), 0
if told_ms then
  oldest = math.min(oldest, told_ms)
  behind = #redis.call('XRANGE', KEYS[1], '(' .. told, '+', 'COUNT', 1000)
end
local gone, lost = drop('MINID', '~', id(oldest, 0)), 0
local oldest_untold = now - tonumber(ARGV[3])
if behind > 0 and (told_ms < oldest_untold or redis.call('XLEN', KEYS[1]) > tonumber(ARGV[4])) and gone < at_once then
  -- Those that are told go first, all of them, so that the others can be counted.
  gone = gone + drop('MINID', '~', told)
  if gone < at_once then
    gone = gone + drop('MINID', '=', id(told_ms, tonumber(told_seq) + 1)) -- less than a node
    lost = drop('MINID', '~', id(oldest_untold, 0)) + drop('MAXLEN', '~', ARGV[4])
    gone = gone + lost
  end
end
if behind < math.min(1000, most) then
  -- The newest ones, which may not have been told, stay.
  gone = gone + drop('MAXLEN', '~', ARGV[1])
end
return { gone, lost }
