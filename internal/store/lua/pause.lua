-- Pauses jobs of one queue. A running one is marked: the pause takes effect when
-- its call has ended and it is not finished by it.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] who   ARGV[3] why ('' = nothing to say)
-- ARGV[4] states in which to act, as ',pending,retry,' ('' = all)
-- ARGV[5...] ids
-- returns per job: what happened, its state before; see cancel.lua
also_when_full()
local out = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'expires_at', 'mark')
  local state, verdict = f[1], 0
  if not state then
    state = '-'
  elseif ARGV[4] ~= '' and not string.find(ARGV[4], ',' .. state .. ',', 1, true) then
    verdict = 3
  elseif waits[state] and f[2] and tonumber(f[2]) <= now then
    leave(id, key, state)
    expire(id, key, state)
    state = 'expired'
  elseif waits[state] and state ~= 'paused' then
    leave(id, key, state)
    park(id, key, 'paused')
    redis.call('HSET', key, 'resume', state, 'mark_by', ARGV[2], 'mark_reason', ARGV[3])
    note(key, { { status = 'paused', event = 'paused', detail = ARGV[3], by = ARGV[2] } })
    verdict = 1
  elseif state == 'active' and f[3] == 'cancel' then
    state = 'cancelling'
  elseif state == 'active' then
    verdict = 2
    if f[3] ~= 'pause' then
      redis.call('HSET', key, 'mark', 'pause', 'mark_by', ARGV[2])
      if ARGV[3] ~= '' then
        redis.call('HSET', key, 'mark_reason', ARGV[3])
      end
      redis.call('SADD', ours .. 'marked', id)
      redis.call('PUBLISH', 'tidegate:marks', queue .. ' ' .. id .. ' pause')
    end
  end
  out[#out + 1] = verdict
  out[#out + 1] = state
end
return out
