-- Tells children of this queue how a parent has ended: completed releases those
-- that wait for no other, anything else cancels them. Telling it twice changes
-- nothing.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] parent   ARGV[3] its state   ARGV[4] reason of a cancel
-- ARGV[5...] children
-- returns how many were released or cancelled
also_when_full()
local changed = 0
for i = 5, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'resume', 'after:' .. ARGV[2], 'waits')
  local state = f[1]
  if state and f[3] == '1' then
    local is_waiting = state == 'waiting' or (state == 'paused' and f[2] == 'waiting')
    if ARGV[3] == 'completed' then
      redis.call('HSET', key, 'after:' .. ARGV[2], '0')
      local left = redis.call('HINCRBY', key, 'waits', -1)
      if left <= 0 and state == 'waiting' then
        leave(id, key, state)
        to_due(id, key)
        note(key, { { status = 'pending', event = 'released', detail = 'all parents completed' } })
        changed = changed + 1
      end
    elseif is_waiting then
      leave(id, key, state)
      finish(id, key, 'cancelled', ARGV[4])
      note(key, { { status = 'cancelled', event = 'cancelled', detail = ARGV[4] } })
      changed = changed + 1
    end
  end
end
return changed
