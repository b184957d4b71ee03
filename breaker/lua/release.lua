-- release: gives a permit back that made no call. The next probe may start at
-- once, and the rate counts one less. No transition.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude
--       11  token of the permit
--       12  the rate that has counted the call, as "interval burst", '' for none
--       13  '1' if the caller knows that this is the first time; otherwise the rate
--           is set back if the permit held something else
--       14  '1' to give back the key's part alone
--       15  sequence, 16 and 17 calls of this instance in flight that are not
--           counted, of the destination and of the key
-- Returns result
--   "released"
--   "stale"     the permit held nothing (any more)

prepare()
local result = 'stale'
local parent, child = read_breakers()
for _, b in ipairs({ parent, child }) do
  local mine = b.key or ARGV[14] ~= '1'
  if mine and redis.call('ZREM', b.inflight_key, ARGV[11]) == 1 then
    result, b.dirty = 'released', true
  end
  if mine and b.state == 'HALF_OPEN' and b.probe_token == ARGV[11] then
    clear_probe(b)
    result, b.dirty = 'released', true
  end
  if join(b, ARGV[15] or '', b.key and ARGV[17] or ARGV[16]) then
    b.dirty = true -- whoever waits for room is to hear of it
  end
end
if ARGV[12] ~= '' and (ARGV[13] == '1' or result == 'released') then
  local at = redis.call('HGET', KEYS[8], ARGV[12])
  if at then
    redis.call('HSET', KEYS[8], ARGV[12], int(math.max(number(at) - rate_of(ARGV[12]), now_us)))
  end
  result = 'released'
end
return finish(result, parent, child)
