-- Takes one job out of a worker's hands, any way but completed. Stands in for
-- asynq's retryCmd, requeueCmd and archiveCmd.
--
-- KEYS[1] task hash   KEYS[2] active   KEYS[3] lease   KEYS[4] scheduled
-- KEYS[5] retry   KEYS[6] pending   KEYS[7] failed
-- ARGV[1] id
-- ARGV[2] kind: reschedule, retry, fail, requeue, defer, recover
-- ARGV[3] delay in ms, by Redis's clock from now
-- ARGV[4] reason (why it waits)   ARGV[5] error ('' leaves last_error alone)
-- ARGV[6] bound of the counter of this kind ('' = none)
-- ARGV[7] response status ('' = none)   ARGV[8] response body
-- ARGV[9] ms to add to expires_at ('' = none)
-- ARGV[10] the run that this comes of ('' = whichever it is)
-- returns {what happened, counter of the kind, available_at in ms}; what
--   happened is the kind, "fail" where the bound was reached, or "gone" where
--   the job is not in the hands that this comes of: a repeated call, or it was
--   recovered and perhaps runs again, somewhere else
local kinds = { reschedule = true, retry = true, fail = true, requeue = true, defer = true, recover = true }
if not kinds[ARGV[2]] then
  return redis.error_reply('ERR settle: unknown kind ' .. ARGV[2])
end
local run = ARGV[10] or ''
if run ~= '' and redis.call('HGET', KEYS[1], 'run') ~= run then
  return { 'gone', 0, 0 }
end
if ARGV[2] == 'recover' then
  -- The list of lost leases may be old: another worker may have recovered the
  -- job, and a third may have it now.
  local lease = redis.call('ZSCORE', KEYS[3], ARGV[1])
  if lease and (tonumber(lease) or 0) > tonumber(redis.call('TIME')[1]) then
    return { 'gone', 0, 0 }
  end
end
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 0 then
  return { 'gone', 0, 0 }
end
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
  return { 'gone', 0, 0 }
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kind, count, at = ARGV[2], 0, now + math.max(0, tonumber(ARGV[3]))
local reason, problem = ARGV[4], ARGV[5]

local counters = { reschedule = 'reschedules', retry = 'attempt', recover = 'crashes' }
local counter = counters[kind]
if counter then
  count = tonumber(redis.call('HGET', KEYS[1], counter) or 0) + 1
  if ARGV[6] ~= '' and kind == 'reschedule' and count > tonumber(ARGV[6]) then
    problem = 'max reschedules (' .. ARGV[6] .. ') exceeded'
    kind, count = 'fail', count - 1
  else
    redis.call('HSET', KEYS[1], counter, count)
    if ARGV[6] ~= '' and kind == 'recover' and count >= tonumber(ARGV[6]) then
      problem = 'its worker died ' .. count .. ' times with this job in hand'
      kind = 'fail'
    end
  end
end

if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[1], 'response_status', ARGV[7], 'response_body', ARGV[8])
end
if problem ~= '' then
  redis.call('HSET', KEYS[1], 'last_error', problem)
end
if ARGV[9] ~= '' then
  local expires = redis.call('HGET', KEYS[1], 'expires_at')
  if expires then
    redis.call('HSET', KEYS[1], 'expires_at', string.format('%.0f', tonumber(expires) + tonumber(ARGV[9])))
  end
end

local at_ms = string.format('%.0f', at)
local function waits(set, state)
  redis.call('ZADD', set, string.format('%.3f', at / 1000), ARGV[1])
  redis.call('HSET', KEYS[1], 'state', state, 'available_at', at_ms, 'reason', reason)
end
if kind == 'fail' then
  redis.call('ZADD', KEYS[7], string.format('%.0f', now), ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'failed', 'ended_at', string.format('%.0f', now))
elseif kind == 'requeue' then
  -- Back to the head: it is the next to run.
  redis.call('RPUSH', KEYS[6], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'pending')
elseif kind == 'reschedule' and at <= now then
  -- To the back of the queue.
  redis.call('LPUSH', KEYS[6], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'pending', 'available_at', at_ms, 'reason', reason,
    'pending_since', string.format('%.0f', now) .. '000000')
elseif kind == 'retry' then
  waits(KEYS[5], 'retry')
else
  waits(KEYS[4], 'scheduled')
end
return { kind, count, at_ms }
