-- Takes a result of a job from outside its worker: from its API, which has accepted it and calls back, or from an
-- operator. A result that comes while the call is made is kept; apply.lua counts it when the call has ended.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] id   ARGV[3] hash of the token ('' = the caller is authorized otherwise)
-- ARGV[4] completed, failed, or '' for neither   ARGV[5] output ('' = none)   ARGV[6] error
-- ARGV[7] progress ('' = none)   ARGV[8] ms by which to move the deadline ('' = none)
-- ARGV[9] digest of the result   ARGV[10] by
-- returns {what happened, the state before}: done; kept until the call has ended; again: that token has brought the same
--   result before; used: it has brought another one, or its attempt has ended; refused: the state does not allow it; none:
--   there is no such job, or the token is not one of its attempt
--
-- A token counts until its job is called again, so that an attempt that seemed to fail can still complete its job.
local id, hash, status, output, problem = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local progress, extend, digest, by = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local key = task(id)
local f = redis.call('HMGET', key, 'state', 'callback', 'called_back', 'available_at', 'run', 'early', 'extend', 'attempt')
local state = f[1]
local running = state == 'active' or state == 'accepted'
local token = hash ~= '' and hash or '-'
local last, result = string.match(f[3] or '', '^(%S+) (%S+)$')
-- The next attempt has begun, and has made no call yet: of the one before only a completion counts.
local over = hash ~= '' and state == 'active' and status ~= 'completed' and string.match(f[2] or '', '^%d+') ~= (f[8] or '0')
local ended = state == 'active' and string.match(f[6] or '', '^%a+') == 'completed'
if not state then
  return { 'none', '-' }
elseif last == token and (hash ~= '' or status ~= '' and (final[state] or state == 'retry')) then
  return { result == digest and 'again' or hash ~= '' and 'used' or 'refused', state }
elseif hash ~= '' and not string.find((f[2] or '') .. ' ', ' ' .. hash .. ' ', 1, true) then
  return { 'none', '-' }
elseif over or ended and status ~= '' and result ~= digest then
  return { hash ~= '' and 'used' or 'refused', state }
elseif ended and status ~= '' then
  return { 'again', state }
elseif not running and not (hash ~= '' and status == 'completed' and waits[state]) then
  return { hash == '' and 'refused' or result == digest and 'again' or 'used', state } -- of another call of the attempt, too
end
allow_when_full()
if progress ~= '' then
  redis.call('HSET', key, 'progress', progress)
end
if extend ~= '' and state == 'accepted' then
  set_deadline(id, key, math.max(now, tonumber(f[4] or '') or now) + tonumber(extend))
elseif extend ~= '' then
  local run, more = string.match(f[7] or '', '^(%S+) (%d+)$')
  redis.call('HSET', key, 'extend', f[5] .. ' ' .. int(math.min((run == f[5] and tonumber(more) or 0) + tonumber(extend), 31622400000)))
end
if status == '' then
  return { 'done', state }
end
redis.call('HSET', key, 'called_back', token .. ' ' .. digest)
if state == 'active' then
  if not f[6] or status == 'completed' then -- one completion of several results counts
    redis.call('HSET', key, 'early', status .. ' ' .. (status == 'completed' and output or problem))
  end
  return { 'kept', state }
end
take_out(id, key, state)
if status == 'completed' then
  complete_outside(id, key, output, {}, by)
else
  fail_outside(id, key, 'explicit', problem, {}, by)
end
return { 'done', state }
