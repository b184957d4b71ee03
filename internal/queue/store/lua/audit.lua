-- Records an act in the audit.
--
-- KEYS[1] the stream   KEYS[2] ids of the tenant's acts, the newest first   KEYS[3] ZSET of all tenants' ids → unix ms;
--   both are left out for an act of no tenant
-- ARGV[1] entries that the stream keeps   ARGV[2] that it keeps of the tenant   ARGV[3] of all tenants
-- ARGV[4...] fields and values
-- returns the id
local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*', unpack(ARGV, 4))
if KEYS[2] then
  redis.call('ZADD', KEYS[3], string.match(id, '^%d+'), id)
  if redis.call('LPUSH', KEYS[2], id) > tonumber(ARGV[2]) then
    local oldest = redis.call('RPOP', KEYS[2])
    redis.call('XDEL', KEYS[1], oldest)
    redis.call('ZREM', KEYS[3], oldest)
  end
  if redis.call('ZCARD', KEYS[3]) > tonumber(ARGV[3]) then
    redis.call('XDEL', KEYS[1], redis.call('ZPOPMIN', KEYS[3])[1])
  end
  redis.call('EXPIRE', KEYS[2], 7776000) -- 90 days after the last act
  redis.call('EXPIRE', KEYS[3], 7776000)
end
return id
