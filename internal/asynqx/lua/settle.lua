-- Takes one job out of a worker's hands, any way but completed. Stands in for
-- asynq's retryCmd, requeueCmd and archiveCmd.
--
-- KEYS[1] task hash   KEYS[2] active   KEYS[3] lease
-- ARGV[1] queue   ARGV[2] id
-- ARGV[3] kind: reschedule, retry, fail, cancel, requeue, defer, recover
-- ARGV[4] delay in ms, by Redis's clock from now
-- ARGV[5] reason (a code, see record.Reason)   ARGV[6] error ('' leaves last_error alone)
-- ARGV[7] bound of the counter of this kind ('' = none)
-- ARGV[8] response status ('' = none)   ARGV[9] response body
-- ARGV[10] ms to add to expires_at ('' = none)
-- ARGV[11] the run that this comes of ('' = whichever it is)
-- ARGV[12] field of a counter that ARGV[7] bounds in place of the kind's ('' = none)
-- returns {what happened, counter of the kind, available_at in ms, 1 if it has
--   children to tell, the problem it failed with}; what happened is the kind, "fail"
--   where the bound was reached, "cancel" or "pause" where that was asked for meanwhile,
--   or "gone" where the job is not in the hands that this comes of: a repeated call, or
--   it was recovered and has been started again or ended since
local id, kind, run = ARGV[2], ARGV[3], ARGV[11] or ''
local kinds = { reschedule = true, retry = true, fail = true, cancel = true, requeue = true, defer = true, recover = true }
if not kinds[kind] then
  return redis.error_reply('ERR settle: unknown kind ' .. kind)
end
local outlived = false -- its lease: the worker was taken for dead, and is not
if run ~= '' then
  local f = redis.call('HMGET', KEYS[1], 'run', 'crash_run')
  if f[2] == run then
    outlived = true
    survived(KEYS[1])
  end
  if f[1] ~= run then
    return { 'gone', 0, 0, 0 }
  end
end
if kind == 'recover' then
  -- The list of lost leases may be old: another worker may have recovered the
  -- job, and a third may have it now.
  local lease = redis.call('ZSCORE', KEYS[3], id)
  if lease and (tonumber(lease) or 0) * 1000 > now then
    return { 'gone', 0, 0, 0 }
  end
end
if redis.call('LREM', KEYS[2], 1, id) == 0 then
  -- Recovered and not started again: what was decided stands, unless it was only to run
  -- again, which it will.
  local state = redis.call('HGET', KEYS[1], 'state')
  local waits_again = state == 'scheduled' or state == 'pending' or state == 'held' or state == 'paused'
  if not outlived or kind == 'requeue' or kind == 'defer' or not (waits_again or state == 'failed') then
    return { 'gone', 0, 0, 0 }
  end
  leave(id, KEYS[1], state)
  redis.call('HDEL', KEYS[1], 'resume')
  if state == 'paused' then
    redis.call('HSET', KEYS[1], 'mark', 'pause')
  elseif state == 'failed' then -- as poison
    redis.call('HDEL', KEYS[1], 'last_error', 'ended_at')
    redis.call('ZREM', ours .. 'outbox', id)
  end
else
  outlived = false
end
redis.call('ZREM', KEYS[3], id)
local f = redis.call('HMGET', KEYS[1], 'msg', 'mark', 'started_at', 'by', 'expires_at', 'run')
if not f[1] then
  return { 'gone', 0, 0, 0 }
end
local mark, by, expires = f[2], f[4] or '', tonumber(f[5] or '')

local count, delay = 0, math.max(0, tonumber(ARGV[4]))
local at = now + delay
local reason, problem = ARGV[5], ARGV[6]

local counters = { reschedule = 'reschedules', retry = 'attempt', recover = 'crashes' }
local counter = counters[kind]
local recovered = kind == 'recover'
if counter then
  count = tonumber(redis.call('HGET', KEYS[1], counter) or 0) + 1
  local own, bounded = ARGV[12] or '', count
  if own ~= '' then
    bounded = tonumber(redis.call('HGET', KEYS[1], own) or 0) + 1
  end
  if ARGV[7] ~= '' and kind == 'reschedule' and bounded > tonumber(ARGV[7]) then
    problem = 'max reschedules (' .. ARGV[7] .. ') exceeded'
    kind, count = 'fail', count - 1
  else
    redis.call('HSET', KEYS[1], counter, count)
    if own ~= '' then
      redis.call('HSET', KEYS[1], own, bounded)
    end
    if recovered then
      redis.call('HSET', KEYS[1], 'crash_run', f[6] or '')
      if ARGV[7] ~= '' and count >= tonumber(ARGV[7]) then
        problem = 'poison: its worker died ' .. count .. ' times with this job in hand'
        kind = 'fail'
      end
    end
  end
end

if ARGV[8] ~= '' then
  redis.call('HSET', KEYS[1], 'response_status', ARGV[8], 'response_body', ARGV[9])
end
if problem ~= '' then
  redis.call('HSET', KEYS[1], 'last_error', problem)
end
if expires and ARGV[10] ~= '' then
  expires = math.min(expires + tonumber(ARGV[10]), 253402300799999) -- the end of the year 9999
  redis.call('HSET', KEYS[1], 'expires_at', int(expires))
end

-- History. A run that ends as planned is told with its end; what the queue does
-- on its own account (a worker that stops, a job put back) leaves no trace.
local entries = {}
if kind ~= 'requeue' and kind ~= 'defer' and not outlived then -- its recovery told of the start
  entries[1] = { status = 'running', event = 'started', by = by, at = f[3] }
end
local function record_event(entry)
  entries[#entries + 1] = entry
  note(KEYS[1], entries)
end
if recovered then
  entries[2] = { status = 'running', event = 'worker_lost', count = count, by = by }
end

-- It waits again, in state at its time: unless something else was asked for.
local function instead(state)
  if expires then
    redis.call('ZADD', ours .. 'expiry', int(expires), id)
  end
  if mark then
    redis.call('HSET', KEYS[1], 'available_at', int(at), 'reason', reason)
    redis.call('SREM', ours .. 'marked', id)
    return honour(id, KEYS[1], mark, state) == 'paused' and 'pause' or 'cancel'
  end
end
local function children()
  return redis.call('HEXISTS', KEYS[1], 'children')
end

if kind == 'fail' or kind == 'cancel' then
  local state = kind == 'fail' and 'failed' or 'cancelled'
  redis.call('SREM', ours .. 'marked', id)
  if kind == 'cancel' then
    local why = redis.call('HMGET', KEYS[1], 'mark_by', 'mark_reason')
    problem = why[2] or problem
    entries[#entries + 1] = { status = state, event = state, detail = why[2] or '', by = why[1] or nil }
    note(KEYS[1], entries)
  else
    record_event({ status = state, event = state, detail = problem })
  end
  finish(id, KEYS[1], state, problem)
  return { kind, count, 0, children(), problem }
end

local target = 'scheduled'
if kind == 'retry' then
  target = 'retry'
  record_event({ status = 'retry_pending', event = 'retry_scheduled', delay = delay, reason = reason })
elseif kind == 'reschedule' then
  record_event({ status = 'pending', event = 'rescheduled', delay = delay, count = count, reason = reason })
elseif kind == 'recover' then
  record_event({ status = 'pending', event = 'recovered', delay = delay })
end
if kind == 'requeue' or (kind == 'reschedule' and delay == 0) then
  target = 'pending'
end
local other = instead(target)
if other then
  return { other, count, 0, children() }
end
if kind == 'requeue' then
  to_front(id, KEYS[1])
elseif target == 'pending' then
  redis.call('HSET', KEYS[1], 'available_at', int(at), 'reason', reason)
  to_pending(id, KEYS[1])
else
  redis.call('HSET', KEYS[1], 'available_at', int(at), 'reason', reason)
  to_timed(id, KEYS[1], target, at, reason)
end
return { kind, count, int(at), 0 }
