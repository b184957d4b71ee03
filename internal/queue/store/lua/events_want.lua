-- Creates the event stream of a queue, if it does not exist, and registers a subscriber.
--
-- KEYS[1] stream   KEYS[2] wanted   KEYS[3] relayed
-- ARGV[1] ms for which it is wanted   ARGV[2] ms for which callbacks are made of its events,
--   from now on unless they are already ('0' = they are not)
-- returns the id of the last entry, or of an empty stream an id before all that follow
-- A Redis that is full takes the rest of a script that began by freeing memory.
local stream_key, wanted_key, relayed_key = KEYS[1], KEYS[2], KEYS[3]
local wanted_ms, relay_ms = ARGV[1], ARGV[2]
redis.call('DEL', wanted_key)
redis.call('SET', wanted_key, '1', 'PX', wanted_ms)
local last
if redis.call('EXISTS', stream_key) == 0 then
  -- Adding and removing an entry creates an empty stream.
  last = redis.call('XADD', stream_key, '*', 'none', '')
  redis.call('XDEL', stream_key, last)
else
  local newest = redis.call('XREVRANGE', stream_key, '+', '-', 'COUNT', 1)[1]
  if newest then
    last = newest[1]
  else
    local clock = redis.call('TIME')
    last = string.format('%.0f-0', clock[1] * 1000 + math.floor(clock[2] / 1000) - 1)
  end
end
if relay_ms ~= '0' and redis.call('PEXPIRE', relayed_key, relay_ms) == 0 then
  redis.call('SET', relayed_key, last, 'PX', relay_ms)
end
return last
