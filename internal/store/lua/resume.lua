-- Resumes paused jobs of one queue: each goes back to where it was paused, with
-- the time it had. One that a breaker had deferred goes to the back of the queue.
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
  local f = redis.call('HMGET', key, 'state', 'expires_at', 'resume', 'mark', 'waits', 'available_at', 'reason')
  local state, verdict = f[1], 0
  if not state then
    state = '-'
  elseif ARGV[4] ~= '' and not string.find(ARGV[4], ',' .. state .. ',', 1, true) then
    verdict = 3
  elseif state == 'paused' and f[2] and tonumber(f[2]) <= now then
    leave(id, key, state)
    expire(id, key, state)
    state = 'expired'
  elseif state == 'paused' then
    local back = f[3]
    leave(id, key, state)
    if back == 'waiting' and (tonumber(f[5]) or 0) > 0 then
      park(id, key, 'waiting')
    elseif back == 'retry' then
      to_timed(id, key, 'retry', tonumber(f[6]) or now)
    else
      back = 'pending'
      if deferred_of(f[7]) then
        -- Its breaker may have closed meanwhile. The gate holds it if it has not.
        redis.call('HSET', key, 'available_at', now_ms)
        redis.call('HDEL', key, 'reason')
      end
      to_due(id, key)
    end
    redis.call('HDEL', key, 'resume', 'mark_by', 'mark_reason')
    note(key, { { status = status_of(back), event = 'resumed', detail = ARGV[3], by = ARGV[2] } })
    verdict = 1
  elseif state == 'active' and f[4] == 'pause' then
    redis.call('HDEL', key, 'mark', 'mark_by', 'mark_reason')
    redis.call('SREM', ours .. 'marked', id)
    verdict = 1
  elseif state == 'active' and ARGV[4] ~= '' then
    verdict = 3 -- of many jobs only those are meant that are paused or will be
  end
  out[#out + 1] = verdict
  out[#out + 1] = state
end
return out
