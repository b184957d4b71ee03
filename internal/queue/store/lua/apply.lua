-- Applies the outcome of a run to its job, any outcome but completed: the job leaves its
-- worker and waits again, or finishes. Replaces asynq's retryCmd, requeueCmd and archiveCmd.
--
-- KEYS[1] task hash   KEYS[2] active   KEYS[3] lease
-- ARGV[1] queue   ARGV[2] id
-- ARGV[3] kind: reschedule, retry, fail, cancel, requeue, defer, recover, accept (its API reports the result within
--   ARGV[4]: the job leaves its worker, and is in no queue until then)
-- ARGV[4] delay in ms, by Redis's clock from now
-- ARGV[5] reason (a code, see store.Reason; '' = none)   ARGV[6] error ('' leaves last_error alone)
-- ARGV[7] bound of the counter of this kind ('' = none)
-- ARGV[8] response status ('' = none)   ARGV[9] response body
-- ARGV[10] ms to add to expires_at ('' = none)
-- ARGV[11] the run whose outcome it is ('' = whichever has the job)
-- ARGV[12] field of a counter that ARGV[7] bounds in place of the kind's ('' = none)
-- ARGV[13] what `refusals` is to say, before the time ('' leaves it, '-' deletes it)
-- ARGV[14] ms that the call took ('' = no call)
-- ARGV[15] what results from outside come to: see fail_outside ('' leaves it)
-- returns {what happened, counter of the kind, available_at in ms, 1 if it has finished
--   and has children, the problem it failed with}; what happened is the kind, "fail"
--   where the bound was reached, "complete", "retry" or "fail" where a result came from outside before, "cancel" or "pause" where that was requested meanwhile,
--   or "gone" where that run does not have the job: a repeated call, or the job was
--   recovered and has been started again or finished since
local key, active_key, lease_key = KEYS[1], KEYS[2], KEYS[3]
local id, kind, delay, reason, problem, limit = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local response_status, response_body, extension, run, counted_by = ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local refusals, took, terms = ARGV[13], ARGV[14], ARGV[15]
-- The counter of each kind.
local counters = { reschedule = 'reschedules', retry = 'attempt', recover = 'crashes' }
local others = { fail = true, cancel = true, requeue = true, defer = true, accept = true }
local GONE = { 'gone', 0, 0, 0 }
if not counters[kind] and not others[kind] then
  return redis.error_reply('ERR apply: unknown kind ' .. kind)
end

-- Counts the workers of this queue that have died within ten minutes, the run's worker included.
local function count_death(of_run)
  local deaths = ours .. 'deaths'
  redis.call('ZADD', deaths, now_ms, string.match(of_run, '^(.*)%-') or of_run)
  redis.call('ZREMRANGEBYSCORE', deaths, '-inf', int(now - 600000))
  redis.call('PEXPIRE', deaths, 600000)
  return redis.call('ZCARD', deaths)
end

-- Whether a job is taken for the cause of its crashes: there are as many as the limit, and fewer
-- than three times as many workers have died. While they die of something else, a job may crash
-- twice as often. A limit of 1 is for jobs that must not run again.
local function is_poison(count, limit, deaths)
  return count >= limit and (limit == 1 or deaths < 3 * count or count >= 2 * limit)
end

-- 1. Whether the job is this run's.
local outlived = false -- its lease lapsed and its worker was taken for dead, but is alive
if run ~= '' then
  local f = redis.call('HMGET', key, 'run', 'crash_run')
  if f[2] == run then
    outlived = true
    take_crash_back(key)
  end
  if f[1] ~= run then
    return GONE
  end
end
if kind == 'recover' then
  -- The list of lapsed leases may be old: another worker may have recovered the
  -- job, and a third may have it now.
  local lease = redis.call('ZSCORE', lease_key, id)
  if lease and (tonumber(lease) or 0) * 1000 > now then
    return GONE
  end
end
if redis.call('LREM', active_key, -1, id) == 0 then
  -- Recovered and not started again: the outcome counts, unless it only returns the job to
  -- the queue, which the recovery has done.
  local state = redis.call('HGET', key, 'state')
  local waits_again = state == 'scheduled' or state == 'pending' or state == 'held' or state == 'paused'
  if not outlived or kind == 'requeue' or kind == 'defer' or not (waits_again or state == 'failed') then
    return GONE
  end
  take_out(id, key, state)
  redis.call('HDEL', key, 'resume')
  if state == 'paused' then
    redis.call('HSET', key, 'action', 'pause')
  elseif state == 'failed' then -- as poison
    redis.call('HDEL', key, 'last_error', 'ended_at')
    redis.call('ZREM', ours .. 'outbox', id)
  end
else
  outlived = false
end
redis.call('ZREM', lease_key, id)
local f = redis.call('HMGET', key, 'msg', 'action', 'started_at', 'by', 'expires_at', 'run', 'unstarted', 'crashes', 'early', 'terms')
if not f[1] then
  return GONE
end
-- A result that has come from outside while the call was made. A completion counts whatever the call came to, a failure
-- in place of the result that was to come.
local early, given = string.match(f[9] or '', '^(%a+) ?(.*)$')
if terms ~= '' then
  redis.call('HSET', key, 'terms', terms)
end
if early then
  redis.call('HDEL', key, 'early')
  local of_attempt = redis.call('HMGET', key, 'callback', 'attempt') -- terms of an attempt before say nothing of this one
  if early == 'completed' or kind == 'accept' or kind == 'recover' and f[10] and string.match(of_attempt[1] or '', '^%d+') == (of_attempt[2] or '0') then
    kind = early
  end
end
if kind == 'accept' and f[2] == 'cancel' then
  kind = 'cancel'
end
local action, started_at, by, expires_at, latest_run = f[2], f[3], f[4] or '', tonumber(f[5] or ''), f[6] or ''

-- 2. Its counters, which may turn the outcome into a failure.
local count = 0
local counter, recovered = counters[kind], ARGV[3] == 'recover'
-- A suspect whose handler had not started cannot have been the cause. The first crash counts for
-- all jobs in flight: it makes the suspects.
local crashes = tonumber(f[8] or '') or 0
local blameless = kind == 'recover' and crashes > 0 and f[7] == latest_run
local deaths = recovered and count_death(latest_run)
if blameless then
  count = crashes
elseif counter then
  count = tonumber(redis.call('HGET', key, counter) or 0) + 1
  local bounded = count
  if counted_by ~= '' then
    bounded = tonumber(redis.call('HGET', key, counted_by) or 0) + 1
  end
  if limit ~= '' and kind == 'reschedule' and bounded > tonumber(limit) then
    problem = 'max reschedules (' .. limit .. ') exceeded'
    kind, count = 'fail', count - 1
  else
    redis.call('HSET', key, counter, count)
    if counted_by ~= '' then
      redis.call('HSET', key, counted_by, bounded)
    end
    if recovered then
      redis.call('HSET', key, 'crash_run', latest_run)
      if limit ~= '' and is_poison(count, tonumber(limit), deaths) then
        problem = 'poison: ' .. count .. (count == 1 and ' worker' or ' workers') .. ' died while running this job'
        kind = 'fail'
      end
    end
  end
end

-- 3. Its record.
if response_status ~= '' then
  redis.call('HSET', key, 'response_status', response_status, 'response_body', response_body)
end
if problem ~= '' then
  redis.call('HSET', key, 'last_error', problem)
end
if took ~= '' then
  redis.call('HSET', key, 'took', took)
end
if refusals == '-' then
  redis.call('HDEL', key, 'refusals')
elseif refusals ~= '' then
  redis.call('HSET', key, 'refusals', refusals .. ' ' .. now_ms)
end
if expires_at and extension ~= '' then
  expires_at = math.min(expires_at + tonumber(extension), 253402300799999) -- the end of the year 9999
  redis.call('HSET', key, 'expires_at', int(expires_at))
end

-- 4. Its history. A start is recorded together with how the run ended; a job that was put
-- back without a run (a worker that stops) leaves no trace.
local entries = {}
if kind ~= 'requeue' and kind ~= 'defer' and not outlived and not blameless then -- its recovery recorded the start
  entries[1] = { status = 'running', event = 'started', by = by, at = started_at }
end
if recovered then
  entries[#entries + 1] = { status = 'running', event = 'worker_lost', count = not blameless and count or nil, by = by }
end
local function record_event(entry)
  entry.took = tonumber(took)
  entries[#entries + 1] = entry
  append_history(key, entries)
end
local function has_children()
  return redis.call('HEXISTS', key, 'children')
end

-- 5. Its next state: the one of its result from outside,
local function waits_no_more()
  redis.call('SREM', ours .. 'actions', id)
  redis.call('ZREM', ours .. 'first_due', id)
end
if kind == 'completed' then
  rare().complete_outside(id, key, given, entries, 'callback')
  return { 'complete', 0, 0, has_children() }
elseif kind == 'failed' then
  waits_no_more()
  local state = rare().fail_outside(id, key, 'explicit', given, entries, 'callback')
  local due = state == 'retry' and redis.call('HGET', key, 'available_at') or 0
  return { ({ failed = 'fail', paused = 'pause', cancelled = 'cancel' })[state] or state, 0, due, has_children(), given }
elseif kind == 'accept' then -- a pause applies if it fails
  waits_no_more()
  local run_of, more = string.match(redis.call('HGET', key, 'extend') or '', '^(%S+) (%d+)$')
  if run_of == latest_run then
    delay = delay + tonumber(more)
  end
  record_event({ status = 'running', event = 'accepted', delay = delay })
  redis.call('HSET', key, 'state', 'accepted', 'reason', reason)
  return { kind, 0, int(set_deadline(id, key, now + delay)), 0 }
end

-- or it finishes,
if kind == 'fail' and action == 'replace' then -- it does not block its key: nobody retries it
  redis.call('HDEL', key, 'action_by')
  local line = redis.call('HGET', key, 'line')
  if line then
    rare().leave_line(id, key, line)
  end
end
if kind == 'fail' or kind == 'cancel' then
  local state = kind == 'fail' and 'failed' or 'cancelled'
  redis.call('SREM', ours .. 'actions', id)
  if kind == 'cancel' then
    local why = redis.call('HMGET', key, 'action_by', 'action_reason')
    problem = why[2] or problem
    record_event({ status = state, event = state, detail = why[2] or '', by = why[1] or nil })
  else
    if reason ~= '' and kind == ARGV[3] then
      redis.call('HSET', key, 'reason', reason)
    end
    record_event({ status = state, event = state, detail = problem })
  end
  finish(id, key, state, problem)
  return { kind, count, 0, has_children(), problem }
end

-- or it waits again, in the state target,
delay = math.max(0, delay)
local at, target = now + delay, 'scheduled'
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
if expires_at then
  wait_until('expiry', id, tonumber(expires_at))
end

-- or the action that was requested while it ran applies.
if action then
  redis.call('HSET', key, 'available_at', int(at), 'reason', reason, 'wait', int(delay))
  redis.call('SREM', ours .. 'actions', id)
  local applied = apply_action(id, key, action, target) == 'paused' and 'pause' or 'cancel'
  return { applied, count, 0, has_children() }
end
if kind == 'requeue' then
  to_front(id, key)
else
  redis.call('HSET', key, 'available_at', int(at), 'reason', reason, 'wait', int(delay))
  if target == 'pending' then
    to_pending(id, key)
  else
    to_timed(id, key, target, at, reason)
  end
end
return { kind, count, int(at), 0 }
