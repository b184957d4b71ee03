-- Runs failed and cancelled jobs again, with their counters at 0. One that still has
-- parents to wait for goes back to waiting (ORPHAN: its parents must be asked again), and
-- one that had not been started goes back to the time that it was enqueued for. TOO_LATE:
-- its expiry has passed. REPLACED: a newer job of its replace-key was enqueued. CHANGED: its message is not the one that
-- edit.lua is to change. See actions.lua.
return act_on_each({ 'expires_at', 'waits', 'attempt', 'reschedules', 'replaced_by' }, function(id, key, state, f, i)
  local expires_at, parents, attempt, reschedules = f[2], f[3], f[4], f[5]
  if state ~= 'failed' and state ~= 'cancelled' then
    return REFUSED
  elseif expires_at and tonumber(expires_at) <= now then
    return TOO_LATE
  elseif f[6] then
    return REPLACED
  end
  local detail = why
  if edit then
    detail = edit(i, key)
    if not detail then
      return CHANGED
    end
  end
  take_out(id, key, state)
  if attempt or reschedules then
    -- Drop the time of a deferral, but not the time of the enqueue.
    redis.call('HDEL', key, 'available_at')
  end
  redis.call('HDEL', key, 'first_due', 'pending_since') -- its age begins anew
  redis.call('HDEL', key, 'attempt', 'reschedules', 'unreachable', 'outage', 'refusals', 'crashes', 'crash_run', 'reason',
    'early', 'extend', 'callback', 'progress', 'last_error', 'ended_at', 'action', 'action_by', 'action_reason')
  local orphan = (tonumber(parents) or 0) > 0
  if orphan then
    park(id, key, 'waiting')
  else
    to_due(id, key)
  end
  if expires_at then
    wait_until('expiry', id, tonumber(expires_at))
  end
  redis.call('ZREM', ours .. 'outbox', id)
  append_history(key, { { status = orphan and 'waiting' or 'pending', event = 'retried', detail = detail, by = by } })
  return orphan and ORPHAN or DONE
end)
