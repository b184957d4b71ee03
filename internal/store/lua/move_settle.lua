-- Starts jobs in the queue that they have moved to, each in its former state, or deletes them
-- again. Jobs that a breaker of the other destination deferred or held are pending now.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2...] per job: id, digest (see move_read.lua), '1' = start it,
--   '0' = delete it
-- returns per job: 1 done, 0 another call has done it
allow_when_full()

local function start(id, key, state, f)
  if f.expires_at then
    if tonumber(f.expires_at) <= now then
      return expire(id, key, state)
    end
    wait_until('expiry', id, tonumber(f.expires_at))
  end
  if state == 'paused' or state == 'waiting' and (tonumber(f.waits or '') or 0) > 0 then
    park(id, key, state)
  elseif state == 'retry' then
    to_timed(id, key, state, wait_end(tonumber(f.available_at or '') or now, f.wait, key))
  else
    if deferred_of(f.reason) then
      redis.call('HSET', key, 'available_at', now_ms)
      redis.call('HDEL', key, 'reason')
    end
    to_due(id, key)
  end
end

local out = {}
for i = 2, #ARGV, 3 do
  local id, digest, wanted = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1'
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'move_digest', 'move_state', 'batch', 'expires_at', 'waits',
    'available_at', 'reason')
  local found = f[1] == 'moving' and f[2] == digest
  if found then
    redis.call('ZREM', ours .. 'moving', id)
    if wanted then
      redis.call('HDEL', key, 'move_state', 'move_from', 'move_digest')
      start(id, key, f[3], { expires_at = f[5], waits = f[6], available_at = f[7], reason = f[8] })
    else
      leave_batch(id, f[4])
      redis.call('UNLINK', key, ours .. 'children:' .. id)
    end
  end
  out[#out + 1] = found and 1 or 0
end
return out
