-- Releases or cancels the children, in this queue, of a parent that has finished: completed
-- releases each child that waits for no other parent, with a copy of its output; anything else
-- cancels them. A second call changes nothing.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3] its state   ARGV[4] reason of a cancel
-- ARGV[5] its output ('' = none)   ARGV[6] bytes that a child keeps of the outputs of its parents
-- ARGV[7] the text that a child keeps in place of an output beyond that   ARGV[8...] children
-- returns how many were released or cancelled
local parent, parent_state, why, output, most, beyond = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
allow_when_full()
local changed = 0
for i = 8, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'resume', 'after:' .. parent, 'waits', 'outputs')
  local state = f[1]
  if state and f[3] == '1' then
    local is_waiting = state == 'waiting' or (state == 'paused' and f[2] == 'waiting')
    if parent_state == 'completed' then
      redis.call('HSET', key, 'after:' .. parent, '0')
      if output ~= '' then
        local bytes = (tonumber(f[5] or '') or 0) + #output
        if bytes <= most then
          redis.call('HSET', key, 'output:' .. parent, output, 'outputs', bytes)
        else
          redis.call('HSET', key, 'output:' .. parent, beyond)
        end
      end
      local left = redis.call('HINCRBY', key, 'waits', -1)
      if left <= 0 and state == 'waiting' then
        take_out(id, key, state)
        to_due(id, key)
        append_history(key, { { status = 'pending', event = 'released', detail = 'all parents completed' } })
        changed = changed + 1
      end
    elseif is_waiting then
      take_out(id, key, state)
      end_cancelled(id, key, why)
      changed = changed + 1
    end
  end
end
return changed
