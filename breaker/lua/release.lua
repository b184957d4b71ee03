-- release: takes a permit back that made no call. The next probe may start at
-- once, and the rate counts one less. No transition.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- ARGV  11  token of the permit
--       12  the rate that has counted the call, as "interval burst", '' for none
--       13  '1' if the caller knows that this is the first time; otherwise the rate
--           is set back if the permit held something else
--       14  '1' to release the key's part alone
--       15  sequence, 16 and 17 calls of this instance in flight that are not
--           metered, of the destination and of the key; none of them is unknown
-- Result
--   "released"
--   "stale"     the permit held nothing (any more)

local token, rate, first, key_only = ARGV[11], ARGV[12], ARGV[13] == '1', ARGV[14] == '1'
local sequence, calls, key_calls = ARGV[15], ARGV[16], ARGV[17]

prepare()
local result = 'stale'
local parent, child = read_breakers()
for _, b in ipairs({ parent, child }) do
  local mine = b.key or not key_only
  if mine and redis.call('ZREM', b.inflight_key, token) == 1 then
    result, b.dirty = 'released', true
  end
  if mine and b.state == 'HALF_OPEN' and b.probe_token == token then
    clear_probe(b)
    result = 'released'
  end
  if join(b, sequence, b.key and key_calls or calls) then
    b.dirty = true -- another call may start
  end
end
if rate ~= '' and (first or result == 'released') then
  local at = redis.call('HGET', RATES, rate)
  if at then
    redis.call('HSET', RATES, rate, int(math.max(number(at) - rate_of(rate), now_us)))
  end
  result = 'released'
end
return finish(result, parent, child)
