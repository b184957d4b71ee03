-- Completes jobs of one queue. Replaces asynq's markAsCompleteCmd and doneCmd; completions
-- of several goroutines share one call.
--
-- KEYS[1] active   KEYS[2] lease   KEYS[3] completed
-- KEYS[4] processed:<date>   KEYS[5] processed
-- ARGV[1] queue   ARGV[2] expiry of KEYS[4], unix seconds
-- ARGV[3] retention in seconds              ARGV[4] worker
-- ARGV[5] how many of the jobs have an output or a reason; of each: id, output, reason ('' = none)
-- ARGV[...] per job: id, response status ('' = none), response body, ms that the call took
-- returns per job: 1 completed, 2 was completed before (a repeated call),
--   3 completed, and it has children, 0 the job does not exist any more
--
-- The destination has accepted a job also if its lease was lost meanwhile: it is completed
-- wherever it is, and its crash is subtracted.
local active_key, lease_key, completed_key, processed_today_key, processed_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local processed_expiry, retention, worker = ARGV[2], ARGV[3], ARGV[4]
local expiry = int(tonumber(clock[1]) + tonumber(retention))
local results, done, n = {}, {}, 0
local first = 6 + 3 * tonumber(ARGV[5])
local extras = first > 6 and {} -- where they begin, by id
for i = 6, first - 1, 3 do
  extras[ARGV[i]] = i
end
for i = first, #ARGV, 4 do
  local id = ARGV[i]
  local key = task(id)
  local mine = redis.call('LREM', active_key, -1, id) -- the oldest are at the end
  local f = redis.call('HMGET', key, 'state', 'children', 'action', 'events', 'last_error', 'first_due', 'took', 'started_at', 'line', 'early')
  local state = f[1]
  if not state then
    redis.call('ZREM', lease_key, id)
    results[#results + 1] = 0
  elseif state == 'completed' then
    results[#results + 1] = 2
  else
    if mine == 0 then
      rare().take_out(id, key, state)
      redis.call('ZREM', ours .. 'expiry', id)
      redis.call('HDEL', key, 'resume', 'action_by', 'action_reason')
      rare().take_crash_back(key)
    end
    done[#done + 1] = expiry
    done[#done + 1] = id
    if ARGV[i + 1] == '' then
      redis.call('HSET', key, 'state', 'completed', 'ended_at', now_ms, 'by', worker)
    else
      redis.call('HSET', key, 'state', 'completed', 'ended_at', now_ms, 'by', worker,
        'response_status', ARGV[i + 1], 'response_body', ARGV[i + 2])
    end
    -- A job may wait in its worker before its call, and its completion for Redis.
    local took = tonumber(ARGV[i + 3])
    if took > 0 and (f[7] or math.abs(now - (tonumber(f[8] or '') or 0) - took) > 5 + took / 10) then
      redis.call('HSET', key, 'took', ARGV[i + 3])
    end
    if f[10] then -- a result from outside, which came while the call was made
      redis.call('HDEL', key, 'early')
      local output = string.match(f[10], '^completed (.+)$')
      if output then
        redis.call('HSET', key, 'output', output)
      end
    end
    local extra = extras and extras[id]
    if extra and ARGV[extra + 1] ~= '' then
      redis.call('HSET', key, 'output', ARGV[extra + 1])
    end
    if extra and ARGV[extra + 2] ~= '' then
      redis.call('HSET', key, 'reason', ARGV[extra + 2])
    end
    n = n + 1
    if f[6] then
      redis.call('ZREM', ours .. 'first_due', id)
    end
    if f[5] then -- of an earlier call
      redis.call('HDEL', key, 'last_error')
    end
    if f[4] then
      rare().publish_event(id, key, 'completed')
    end
    if f[3] then
      redis.call('HDEL', key, 'action', 'action_by', 'action_reason')
      redis.call('SREM', ours .. 'actions', id)
    end
    if f[9] then
      rare().leave_line(id, key, f[9])
    end
    if f[2] then
      rare().release_children_of(id)
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
  redis.call('ZREM', lease_key, unpack(ids))
  redis.call('ZADD', completed_key, unpack(done))
  if redis.call('INCRBY', processed_today_key, n) == n then
    redis.call('EXPIREAT', processed_today_key, processed_expiry)
  end
  redis.call('INCRBY', processed_key, n)
end
return results
