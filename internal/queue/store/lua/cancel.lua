-- Cancels jobs. Of a running one it is requested: its worker cancels the call; an accepted one is cancelled at once. STUCK says
-- that this has no effect, because its handler does not return. A failed job that blocks the line of its key can be
-- cancelled, too. See actions.lua.
return act_on_each({ 'expires_at', 'action', 'run', 'stuck_run', 'line' }, function(id, key, state, f)
  local expires_at, action, run, stuck_run = f[2], f[3], f[4], f[5]
  if expire_if_due(id, key, state, expires_at) then
    return REFUSED, 'expired'
  elseif waits[state] or state == 'accepted' or state == 'failed' and f[6] then
    take_out(id, key, state)
    end_cancelled(id, key, why, by)
    return DONE
  elseif state ~= 'active' then
    return REFUSED
  end
  if action ~= 'cancel' then
    redis.call('HDEL', key, 'action_reason') -- of a pause
    request(id, key, 'cancel')
  end
  return run and run == stuck_run and STUCK or REQUESTED
end)
