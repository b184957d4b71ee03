-- Removes jobs from the queue that they leave, if they wait and have not changed since
-- they were read. `moved` keeps "<id> <digest>" of them until they have started in the
-- other queue: a job that is gone without it has ended here.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2...] per job: id, digest (see move_read.lua)
-- returns per job: 1 removed, now or before, 0 not
local pending_key = KEYS[1]
allow_when_full()
local out = {}
for i = 2, #ARGV, 2 do
  local id, digest = ARGV[i], ARGV[i + 1]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'batch')
  local entry = id .. ' ' .. digest
  local removed = redis.call('ZSCORE', ours .. 'moved', entry)
  if not removed and waits[f[1] or ''] and snapshot(id, key) == digest then
    take_out(id, key, f[1])
    leave_batch(id, f[2])
    redis.call('ZREM', ours .. 'expiry', id)
    redis.call('ZREM', ours .. 'first_due', id)
    redis.call('UNLINK', key, ours .. 'children:' .. id)
    redis.call('ZADD', ours .. 'moved', now_ms, entry)
    removed = true
  end
  out[#out + 1] = removed and 1 or 0
end
-- No worker may serve this queue any more and drop its tombstones: drop them here.
local n = 0
while n < 1000 do
  local id = redis.call('LINDEX', pending_key, -1)
  if not id or redis.call('HGET', task(id), 'state') == 'pending' then
    break
  end
  redis.call('RPOP', pending_key)
  redis.call('HDEL', task(id), 'tombstone')
  n = n + 1
end
count_tombstones_down(n)
return out
