-- The beat of a queue: moves jobs whose time has come to the back of the queue, up
-- to 100, and looks what else is to be done. Stands in for asynq's forwardCmd, which
-- knows whole seconds only and believes the worker's clock.
--
-- KEYS[1] due   KEYS[2] pending
-- ARGV[1] queue   ARGV[2] '1' to move, '0' to look only
-- ARGV[3] '1' to look for parents too   ARGV[4] '1' to look for marks too
-- returns {how many were taken out of due, 1 if a job's expiry has come,
--   1 if a parent that has ended has children to tell, id and mark of each job in
--   hand of which something is asked, ...}
--
-- Each worker calls this every second for each queue; where there is nothing to
-- do it costs no more than looking.
local ids = {}
if ARGV[2] == '1' then
  ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, 100)
end
if #ids > 0 then
  -- First, because a Redis that is full refuses a script's first write unless
  -- it frees memory, and lets it finish otherwise.
  redis.call('ZREM', KEYS[1], unpack(ids))
end
for _, id in ipairs(ids) do
  local key = task(id)
  local state = redis.call('HGET', key, 'state')
  if state == 'scheduled' or state == 'retry' then
    leave(id, key, state)
    to_pending(id, key)
  elseif not state then
    redis.call('ZREM', asynq .. 'scheduled', id)
    redis.call('ZREM', asynq .. 'retry', id)
  end
end
-- Most queues have neither: one look is enough.
local rare = redis.call('EXISTS', ours .. 'expiry', ours .. 'heldkeys')
local next = rare > 0 and redis.call('ZRANGE', ours .. 'expiry', 0, 0, 'WITHSCORES') or {}
local out = { #ids, next[2] and tonumber(next[2]) <= now and 1 or 0, 0 }
if ARGV[3] == '1' then
  out[3] = redis.call('EXISTS', ours .. 'outbox')
end
for _, id in ipairs(ARGV[4] == '1' and redis.call('SMEMBERS', ours .. 'marked') or {}) do
  local f = redis.call('HMGET', task(id), 'state', 'mark')
  if f[1] == 'active' and f[2] then
    out[#out + 1] = id
    out[#out + 1] = f[2]
  else
    redis.call('SREM', ours .. 'marked', id)
  end
end
-- Held keys whose time was set before the clock went back would wait for as long as it
-- has: they are asked for now. `heldclock` is the time of an earlier beat, 10 s ago at most.
if rare > (next[1] and 1 or 0) then
  local seen = tonumber(redis.call('GET', ours .. 'heldclock') or '')
  if not seen or now < seen or now > seen + 10000 then
    also_when_full()
    if not seen or now > seen or all_due() < 1000 then
      redis.call('SET', ours .. 'heldclock', now_ms, 'PX', 3600000)
    end
  end
end
return out
