-- Pauses jobs. Of a running one it is requested: the pause takes effect when its call has
-- ended, unless the call finishes it, and of an accepted one when its attempt has failed. See actions.lua.
return act_on_each({ 'expires_at', 'action' }, function(id, key, state, f)
  local expires_at, action = f[2], f[3]
  if expire_if_due(id, key, state, expires_at) then
    return REFUSED, 'expired'
  elseif waits[state] and state ~= 'paused' then
    take_out(id, key, state)
    park(id, key, 'paused')
    redis.call('HSET', key, 'resume', state, 'action_by', by, 'action_reason', why)
    append_history(key, { { status = 'paused', event = 'paused', detail = why, by = by } })
    return DONE
  elseif state ~= 'active' and state ~= 'accepted' then
    return REFUSED
  elseif action == 'cancel' or action == 'replace' then
    return REFUSED, 'cancelling'
  end
  if action ~= 'pause' and state == 'accepted' then -- no worker has to know
    redis.call('HSET', key, 'action', 'pause', 'action_by', by, 'action_reason', why)
  elseif action ~= 'pause' then
    request(id, key, 'pause')
  end
  return REQUESTED
end)
