-- Expires overdue waiting jobs of one queue. A running one is skipped: its expiry counts
-- again when it waits again.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many at most
-- ARGV[3...] ids: only these are checked, if any are given
-- returns {how many were checked, how many expired}
local max = ARGV[2]
local ids, expired = { unpack(ARGV, 3) }, 0
if #ids == 0 then
  ids = redis.call('ZRANGEBYSCORE', ours .. 'expiry', '-inf', now_ms, 'LIMIT', 0, max)
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
      take_out(id, key, state)
      expire(id, key, state)
      expired = expired + 1
    end
  end
end
return { #ids, expired }
