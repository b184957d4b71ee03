-- Trims the event stream of a queue, and deletes it when it has no subscribers.
--
-- KEYS[1] stream   KEYS[2] wanted   KEYS[3] relayed
-- ARGV[1] how many entries stay at most   ARGV[2] ms that they stay at most
-- ARGV[3] ms that entries without callbacks stay at most
-- ARGV[4] how many of these stay at most
-- ARGV[5] how many entries dropped at once mean that there may be more
-- returns {dropped entries (-1: the stream), dropped entries without callbacks}. Redis drops
--   up to 10,000 at once, of each kind: where it has, there may be more
local stream_key, wanted_key, relayed_key = KEYS[1], KEYS[2], KEYS[3]
local most, keep_ms, keep_unrelayed_ms, most_unrelayed, at_once = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('EXISTS', stream_key) == 0 then
  return { 0, 0 }
end
local relayed = redis.call('GET', relayed_key)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local relayed_ms, relayed_seq = string.match(relayed or '', '^(%d+)-(%d+)$')
relayed_ms = tonumber(relayed_ms)
if not relayed and redis.call('EXISTS', wanted_key) == 0 then
  redis.call('DEL', stream_key)
  return { -1, 0 }
end

local function drop(by, how, limit)
  return redis.call('XTRIM', stream_key, by, how, limit)
end

local function id(ms, seq)
  return string.format('%.0f-%.0f', ms, seq)
end

local most, at_once = tonumber(most), tonumber(at_once)
local oldest, behind = now - tonumber(keep_ms), 0
if relayed_ms then
  oldest = math.min(oldest, relayed_ms)
  behind = #redis.call('XRANGE', stream_key, '(' .. relayed, '+', 'COUNT', 1000)
end
local gone, lost = drop('MINID', '~', id(oldest, 0)), 0
local oldest_unrelayed = now - tonumber(keep_unrelayed_ms)
if behind > 0 and (relayed_ms < oldest_unrelayed or redis.call('XLEN', stream_key) > tonumber(most_unrelayed)) and gone < at_once then
  -- Drop all relayed ones first, so that the others can be counted.
  gone = gone + drop('MINID', '~', relayed)
  if gone < at_once then
    gone = gone + drop('MINID', '=', id(relayed_ms, tonumber(relayed_seq) + 1)) -- less than a node
    lost = drop('MINID', '~', id(oldest_unrelayed, 0)) + drop('MAXLEN', '~', most_unrelayed)
    gone = gone + lost
  end
end
if behind < math.min(1000, most) then
  -- The newest ones, which may not have been relayed, stay.
  gone = gone + drop('MAXLEN', '~', most)
end
return { gone, lost }
