-- Counts the jobs of one queue by where they are, and looks for the oldest one that waits
-- and has been due. It changes nothing but an index with entries of finished jobs.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many ids to skip at the head of the list
-- ARGV[3] ms within which a job has failed recently
-- ARGV[4] until when jobs that expire are counted, unix ms
-- returns {pending, scheduled, active, retry, completed, failed, cancelled, expired,
--   paused, waiting, held, accepted, when the oldest was first due in unix ms ('' = none, or the head of
--   the list was not found), the operator's pause of the queue ('' = none), jobs that failed
--   recently, waiting jobs that are overdue, waiting jobs that expire until ARGV[4], id of the
--   oldest ('' = unknown)}
local pending_key = KEYS[1]
local skip, recent_ms, expiring_until = ARGV[2], ARGV[3], ARGV[4]
local pending = redis.call('LLEN', pending_key)
local tombstones = tonumber(redis.call('GET', ours .. 'tombstones') or 0)
local out = { math.max(0, pending - tombstones) }
out[2] = redis.call('ZCARD', asynq .. 'scheduled')
out[3] = redis.call('LLEN', asynq .. 'active')
out[4] = redis.call('ZCARD', asynq .. 'retry')
out[5] = redis.call('ZCARD', asynq .. 'completed')
for i, name in ipairs({ 'failed', 'cancelled', 'expired', 'paused', 'waiting', 'held', 'accepted' }) do
  out[5 + i] = redis.call('ZCARD', ours .. name)
end
-- The oldest job: the first of each order in which jobs wait, by when it was first due.
local oldest, oldest_id
local function older(at, id)
  if at and (not oldest or at < oldest) then
    oldest, oldest_id = at, id
  end
end
-- The list's right end is the head. Tombstones can be many there, where no worker fetches.
local from, last, head = tonumber(skip), tonumber(skip) + 1000, nil
while out[1] > 0 and not head and from < last and from < pending do
  local ids = redis.call('LRANGE', pending_key, -from - 50, -from - 1)
  for i = #ids, 1, -1 do
    local f = redis.call('HMGET', task(ids[i]), 'state', 'pending_since')
    if f[1] == 'pending' and f[2] then
      head = true
      older(math.floor(tonumber(f[2]) / 1000000), ids[i])
      break
    end
  end
  from = from + 50
end
-- Held for the first time: in the order of the queue that they were taken from.
for _, id in ipairs(out[11] > 0 and redis.call('ZRANGE', ours .. 'held', 0, 9) or {}) do
  local f = redis.call('HMGET', task(id), 'state', 'first_due', 'pending_since')
  if f[1] == 'held' and (f[2] or f[3]) then
    older(tonumber(f[2] or '') or math.floor(tonumber(f[3]) / 1000000), id)
    break
  end
end
-- Due before: rescheduled, retried and the like. Those that run are passed over, up to a bound:
-- the next one is not older. Of finished jobs a worker of an earlier version may have left entries.
local running, examined = 0, 0
repeat
  local ids, found = redis.call('ZRANGE', ours .. 'first_due', running, running + 49, 'WITHSCORES'), false
  for i = 1, #ids, 2 do
    local state = redis.call('HGET', task(ids[i]), 'state')
    found = state and waits[state]
    if found then
      older(tonumber(ids[i + 1]), ids[i])
      break
    elseif state == 'active' then
      running = running + 1
    else
      redis.call('ZREM', ours .. 'first_due', ids[i])
    end
  end
  examined = examined + #ids / 2
  if not found and examined >= 500 then
    local next_one = redis.call('ZRANGE', ours .. 'first_due', running, running, 'WITHSCORES')
    older(tonumber(next_one[2] or ''), '')
    found = true
  end
until found or #ids < 100
-- Due for the first time, and not in the queue yet: no worker forwards them.
local due = redis.call('ZRANGEBYSCORE', ours .. 'due', '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 1)
older(tonumber(due[2] or ''), due[1])
out[13] = oldest and (head or out[1] == 0) and int(oldest) or ''
-- Of the held jobs those are ready whose keys take turns. Beyond a thousand keys of either kind they are
-- taken to hold as many jobs as the others.
if out[11] > 0 and redis.call('EXISTS', ours .. 'turns') == 1 then
  local of_turns, n = redis.call('ZCARD', ours .. 'turns'), 0
  local others = redis.call('ZCARD', ours .. 'held_keys') - of_turns
  local names = of_turns <= others and redis.call('ZRANGE', ours .. 'turns', 0, 999)
    or others > 0 and redis.call('ZRANGEBYSCORE', ours .. 'held_keys', '-inf', '(9000000000000000', 'LIMIT', 0, 1000) or {}
  for _, name in ipairs(names) do
    n = n + redis.call('ZCARD', ours .. 'held:' .. name)
  end
  n = #names > 0 and math.floor(n / #names * math.min(of_turns, others)) or 0
  n = math.min(out[11], of_turns <= others and n or out[11] - n)
  out[1], out[11] = out[1] + n, out[11] - n
end
out[14] = redis.call('GET', asynq .. 'paused') or ''
out[15] = redis.call('ZCOUNT', ours .. 'failed', int(now - tonumber(recent_ms)), '+inf')
out[16] = redis.call('ZCOUNT', ours .. 'expiry', '-inf', now_ms)
out[17] = redis.call('ZCOUNT', ours .. 'expiry', '-inf', expiring_until)
out[18] = out[13] ~= '' and oldest_id or ''
return out
