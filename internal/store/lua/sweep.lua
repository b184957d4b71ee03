-- Ends the jobs of one queue as expired whose time is over and that wait, up to
-- ARGV[2] of them. A running one is passed over: when it comes back, its expiry is
-- looked at again.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many at most
-- ARGV[3...] ids: only these are looked at, if any are given
-- returns {how many were looked at, how many expired}
local ids, expired = { unpack(ARGV, 3) }, 0
if #ids == 0 then
  ids = redis.call('ZRANGEBYSCORE', ours .. 'expiry', '-inf', now_ms, 'LIMIT', 0, ARGV[2])
end
if #ids > 0 then
  redis.call('ZREM', ours .. 'expiry', unpack(ids))
end
for _, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'expires_at')
  local state, at = f[1], tonumber(f[2] or '')
  if state and waits[state] and at then
    if at > now then
      redis.call('ZADD', ours .. 'expiry', f[2], id)
    else
      leave(id, key, state)
      expire(id, key, state)
      expired = expired + 1
    end
  end
end
return { #ids, expired }
