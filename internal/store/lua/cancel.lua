-- Cancels jobs of one queue. A running one is marked: its worker cuts the call.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] who   ARGV[3] why ('' = nothing to say)
-- ARGV[4] states in which to act, as ',pending,retry,' ('' = all)
-- ARGV[5...] ids
-- returns per job: what happened, its state before ('-' if there is no such job);
--   what happened is 1 done, 2 asked for, 7 asked for in vain, its handler does not
--   return, 0 nothing: its state does not allow it,
--   3 passed over: not in the wanted state
also_when_full()
local out = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'expires_at', 'mark', 'run', 'stuck_run')
  local state, verdict = f[1], 0
  if not state then
    state = '-'
  elseif ARGV[4] ~= '' and not string.find(ARGV[4], ',' .. state .. ',', 1, true) then
    verdict = 3
  elseif waits[state] and f[2] and tonumber(f[2]) <= now then
    leave(id, key, state)
    expire(id, key, state)
    state = 'expired'
  elseif waits[state] then
    leave(id, key, state)
    finish(id, key, 'cancelled', ARGV[3] ~= '' and ARGV[3] or 'cancelled')
    note(key, { { status = 'cancelled', event = 'cancelled', detail = ARGV[3], by = ARGV[2] } })
    verdict = 1
  elseif state == 'active' then
    verdict = f[4] and f[4] == f[5] and 7 or 2
    if f[3] ~= 'cancel' then
      redis.call('HDEL', key, 'mark_reason') -- of a pause
      redis.call('HSET', key, 'mark', 'cancel', 'mark_by', ARGV[2])
      if ARGV[3] ~= '' then
        redis.call('HSET', key, 'mark_reason', ARGV[3])
      end
      redis.call('SADD', ours .. 'marked', id)
      redis.call('PUBLISH', 'tidegate:marks', queue .. ' ' .. id .. ' cancel')
    end
  end
  out[#out + 1] = verdict
  out[#out + 1] = state
end
return out
