-- Expires jobs that wait, whatever for, before their time. See actions.lua.
return act_on_each({}, function(id, key, state)
  if not waits[state] then
    return REFUSED
  end
  take_out(id, key, state)
  expire(id, key, state, why ~= '' and why or 'by hand, while ' .. status_of(state), by)
  return DONE
end)
