-- Runs failed and cancelled jobs of one queue again, with their counters at 0. One
-- that still has parents to wait for goes back to waiting, and one that had not been
-- started goes back to the time that it was enqueued for.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] who   ARGV[3] why ('' = nothing to say)
-- ARGV[4] states in which to act, as ',failed,' ('' = all)
-- ARGV[5...] ids
-- returns per job: what happened, its state before; see cancel.lua. 4 is done, and
--   its parents must be asked again; 5 is nothing: its expiry has passed
also_when_full()
local out = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'expires_at', 'waits', 'attempt', 'reschedules')
  local state, verdict = f[1], 0
  if not state then
    state = '-'
  elseif ARGV[4] ~= '' and not string.find(ARGV[4], ',' .. state .. ',', 1, true) then
    verdict = 3
  elseif (state == 'failed' or state == 'cancelled') and f[2] and tonumber(f[2]) <= now then
    verdict = 5
  elseif state == 'failed' or state == 'cancelled' then
    leave(id, key, state)
    if f[4] or f[5] then
      -- What it was put off until is over; the time it was enqueued for is not.
      redis.call('HDEL', key, 'available_at')
    end
    redis.call('HDEL', key, 'attempt', 'reschedules', 'unreachable', 'crashes', 'crash_run', 'reason',
      'last_error', 'ended_at', 'mark', 'mark_by', 'mark_reason')
    local status = 'pending'
    if (tonumber(f[3]) or 0) > 0 then
      park(id, key, 'waiting')
      status = 'waiting'
      verdict = 4
    else
      to_due(id, key)
      verdict = 1
    end
    if f[2] then
      redis.call('ZADD', ours .. 'expiry', f[2], id)
    end
    redis.call('ZREM', ours .. 'outbox', id)
    note(key, { { status = status, event = 'retried', detail = ARGV[3], by = ARGV[2] } })
  end
  out[#out + 1] = verdict
  out[#out + 1] = state
end
return out
