-- Completes jobs of one queue. Stands in for asynq's markAsCompleteCmd and
-- doneCmd; several workers' completions share one call.
--
-- KEYS[1] active   KEYS[2] lease   KEYS[3] completed
-- KEYS[4] processed:<date>   KEYS[5] processed
-- ARGV[1] queue   ARGV[2] expiry of KEYS[4], unix seconds
-- ARGV[3] retention in seconds              ARGV[4] worker
-- ARGV[5...] per job: id, response status ('' = none), response body
-- returns per job: 1 completed, 2 was completed before (a repeated call),
--   3 completed, and it has children to tell, 0 there is no such job any more
--
-- A job that is not in our hands any more, because the lease was lost, was
-- accepted by the destination all the same: it is completed wherever it is, and
-- the crash that was counted was none.
local expiry = int(tonumber(clock[1]) + tonumber(ARGV[3]))
local results, done, n = {}, {}, 0
for i = 5, #ARGV, 3 do
  local id = ARGV[i]
  local key = task(id)
  local mine = redis.call('LREM', KEYS[1], 1, id)
  local f = redis.call('HMGET', key, 'state', 'children', 'mark', 'ends', 'last_error')
  local state = f[1]
  if not state then
    redis.call('ZREM', KEYS[2], id)
    results[#results + 1] = 0
  elseif state == 'completed' then
    results[#results + 1] = 2
  else
    if mine == 0 then
      leave(id, key, state)
      redis.call('ZREM', ours .. 'expiry', id)
      redis.call('HDEL', key, 'resume', 'mark_by', 'mark_reason')
      survived(key)
    end
    done[#done + 1] = expiry
    done[#done + 1] = id
    if ARGV[i + 1] == '' then
      redis.call('HSET', key, 'state', 'completed', 'ended_at', now_ms, 'by', ARGV[4])
    else
      redis.call('HSET', key, 'state', 'completed', 'ended_at', now_ms, 'by', ARGV[4],
        'response_status', ARGV[i + 1], 'response_body', ARGV[i + 2])
    end
    n = n + 1
    if f[5] then -- of an earlier call
      redis.call('HDEL', key, 'last_error')
    end
    if f[4] then
      publish_end(id, key, 'completed')
    end
    if f[3] then
      redis.call('HDEL', key, 'mark', 'mark_by', 'mark_reason')
      redis.call('SREM', ours .. 'marked', id)
    end
    if f[2] then
      redis.call('ZADD', ours .. 'outbox', now_ms, id)
      results[#results + 1] = 3
    else
      results[#results + 1] = 1
    end
  end
end
if n > 0 then
  local ids = {}
  for i = 2, #done, 2 do
    ids[#ids + 1] = done[i]
  end
  redis.call('ZREM', KEYS[2], unpack(ids))
  redis.call('ZADD', KEYS[3], unpack(done))
  if redis.call('INCRBY', KEYS[4], n) == n then
    redis.call('EXPIREAT', KEYS[4], ARGV[2])
  end
  redis.call('INCRBY', KEYS[5], n)
end
return results
