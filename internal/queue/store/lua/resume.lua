-- Resumes paused jobs: each goes back to where it was paused, with the time it had. One
-- that a breaker had deferred goes to the back of the queue. See actions.lua.
return act_on_each({ 'expires_at', 'resume', 'action', 'waits', 'available_at', 'reason', 'wait' }, function(id, key, state, f)
  local expires_at, back, action, parents, available_at, reason = f[2], f[3], f[4], f[5], f[6], f[7]
  if state == 'paused' and expire_if_due(id, key, state, expires_at) then
    return REFUSED, 'expired'
  elseif state == 'paused' then
    take_out(id, key, state)
    if back == 'waiting' and (tonumber(parents) or 0) > 0 then
      park(id, key, 'waiting')
    elseif back == 'retry' then
      to_timed(id, key, 'retry', wait_end(tonumber(available_at) or now, f[8], key))
    else
      back = 'pending'
      if deferred_of(reason) then
        -- Its breaker may have closed meanwhile. The gate holds it if it has not.
        redis.call('HSET', key, 'available_at', now_ms)
        redis.call('HDEL', key, 'reason')
      end
      to_due(id, key)
    end
    redis.call('HDEL', key, 'resume', 'action_by', 'action_reason')
    append_history(key, { { status = status_of(back), event = 'resumed', detail = why, by = by } })
    return DONE
  elseif (state == 'active' or state == 'accepted') and action == 'pause' then
    redis.call('HDEL', key, 'action', 'action_by', 'action_reason')
    redis.call('SREM', ours .. 'actions', id)
    return DONE
  elseif (state == 'active' or state == 'accepted') and states ~= '' then
    return SKIPPED -- an action on many jobs applies to paused ones and requested pauses only
  end
  return REFUSED
end)
