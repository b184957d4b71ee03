-- Moves due jobs to the back of the queue, up to 100, fails accepted jobs whose deadline has passed, and reports what other maintenance
-- the queue needs. Replaces asynq's forwardCmd, which knows whole seconds only and goes by
-- the worker's clock.
--
-- KEYS[1] due   KEYS[2] pending
-- ARGV[1] queue   ARGV[2] '1' to move, '0' to look only
-- ARGV[3] '1' to look for parents too   ARGV[4] '1' to look for requested actions too
-- ARGV[5] length of a lease in ms
-- returns {how many were taken out of due or accepted, 1 if a job's expiry has come,
--   1 if the outbox holds a parent, ms until the next job is due or expires ('' = none does),
--   how many of the moved jobs had waited because of a limit, and because their worker had died,
--   id and requested action of running jobs that have one, ...}: of up to 100, others with each call
--
-- Without work it only reads.
local due_key = KEYS[1]
local move, look_for_parents, look_for_actions, lease_ms = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ids = {}
if move == '1' then
  ids = redis.call('ZRANGEBYSCORE', due_key, '-inf', now_ms, 'LIMIT', 0, 100)
end
if #ids > 0 then
  -- First, because a Redis that is full refuses a script's first write unless
  -- it frees memory, and lets it finish otherwise.
  redis.call('ZREM', due_key, unpack(ids))
end
local ended = 0
local deadline = redis.call('ZRANGE', ours .. 'accepted', 0, 0, 'WITHSCORES')[2]
if deadline and tonumber(deadline) <= now then
  local late = redis.call('ZRANGEBYSCORE', ours .. 'accepted', '-inf', now_ms, 'LIMIT', 0, 100)
  redis.call('ZREM', ours .. 'accepted', unpack(late))
  for _, id in ipairs(late) do
    local key = task(id)
    if redis.call('HGET', key, 'state') == 'accepted' then
      rare().take_out(id, key, 'accepted')
      rare().fail_outside(id, key, 'timeout', 'its API accepted it and did not report the result in time', {})
    end
  end
  ended = #late
  deadline = redis.call('ZRANGE', ours .. 'accepted', 0, 0, 'WITHSCORES')[2]
end
local limited, lost = 0, 0
for _, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'reason')
  local state = f[1]
  local why = state == 'scheduled' and string.match(f[2] or '', '^%S+')
  limited = limited + ((why == 'breaker_open' or why == 'rate_limited') and 1 or 0)
  lost = lost + (why == 'worker_lost' and 1 or 0)
  if state == 'scheduled' or state == 'retry' then
    rare().take_out(id, key, state)
    rare().to_pending(id, key)
  elseif not state then
    redis.call('ZREM', asynq .. 'scheduled', id)
    redis.call('ZREM', asynq .. 'retry', id)
  end
end
-- Most queues have neither: one EXISTS is enough.
local unusual = redis.call('EXISTS', ours .. 'expiry', ours .. 'held_keys')
local next = unusual > 0 and redis.call('ZRANGE', ours .. 'expiry', 0, 0, 'WITHSCORES') or {}
local due = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')
local soonest = math.min(tonumber(next[2] or '') or math.huge, tonumber(due[2] or '') or math.huge, tonumber(deadline or '') or math.huge)
local out = { #ids + ended, next[2] and tonumber(next[2]) <= now and 1 or 0, 0, soonest < math.huge and int(soonest - now) or '', limited, lost }
if look_for_parents == '1' then
  out[3] = redis.call('EXISTS', ours .. 'outbox')
end
for _, id in ipairs(look_for_actions == '1' and redis.call('SRANDMEMBER', ours .. 'actions', 100) or {}) do
  local f = redis.call('HMGET', task(id), 'state', 'action')
  if f[1] == 'active' and f[2] then
    out[#out + 1] = id
    out[#out + 1] = f[2]
  else
    redis.call('SREM', ours .. 'actions', id)
  end
end
-- What was set before the clock went back would last for that much longer. `clock` is the time
-- of an earlier call, 10 s ago at most, or that from which the clock has gone back, and how far
-- its repair is.
if due[1] or unusual > (next[1] and 1 or 0) or redis.call('EXISTS', asynq .. 'lease') == 1 then
  local seen, cursor = string.match(redis.call('GET', ours .. 'clock') or '', '^(%d+) ?(%d*)$')
  seen = tonumber(seen or '')
  if not seen or now + 1000 < seen or now > seen + 10000 then
    rare().allow_when_full()
    cursor = seen and now + 1000 < seen and rare().shorten_all(cursor == '' and '0' or cursor, lease_ms) or '0'
    redis.call('SET', ours .. 'clock', cursor == '0' and now_ms or int(seen) .. ' ' .. cursor, 'PX', 604800000)
    if cursor ~= '0' then
      out[4] = '1'
    end
  end
  if unusual > (next[1] and 1 or 0) then
    out[4] = int(math.min(tonumber(out[4]) or 5000, 5000))
  end
end
return out
