-- Forgets what nobody is to read any more.
--
-- KEYS[1] stream   KEYS[2] wanted   KEYS[3] told
-- ARGV[1] how many entries stay at most   ARGV[2] ms that they stay at most
-- ARGV[3] ms that those stay at most of which callbacks have not been made
-- returns how many entries went, -1 if the stream went. Redis drops up to 10,000 at once,
--   of each kind: where it has, there may be more
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local told = redis.call('GET', KEYS[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local told_ms = tonumber(string.match(told or '', '^(%d+)'))
if not told and redis.call('EXISTS', KEYS[2]) == 0 and #redis.call('XINFO', 'GROUPS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  return -1
end
local oldest, behind = now - tonumber(ARGV[2]), 0
if told_ms then
  oldest = math.max(math.min(oldest, told_ms), now - tonumber(ARGV[3]))
  behind = #redis.call('XRANGE', KEYS[1], '(' .. told, '+', 'COUNT', 1000)
end
local gone = redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f-0', oldest))
if behind < math.min(1000, tonumber(ARGV[1])) then
  -- The newest ones, which may not have been told, stay.
  gone = gone + redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
end
return gone
