-- Precedes the doctor's scripts, after the prelude of all scripts. Each checks and, unless it
-- is a dry run, repairs in the same step: a disagreement inside one script is an error, and
-- not a change in progress.
--
-- ARGV[1] queue   ARGV[2] '1' = dry run: change nothing   ARGV[3] the actor
local dry, by = ARGV[2] == '1', ARGV[3]

-- What was found, as kind, id, kind, id, ...
local found = {}
local function report(kind, id)
  found[#found + 1] = kind
  found[#found + 1] = id
end

local function repaired(key, state, detail)
  append_history(key, { { status = status_of(state), event = 'repaired', detail = detail, by = by } })
end

-- Describes a job that must be in the pending list, so that a later call can detect whether it has
-- moved since; '' for a job that need not be there.
local function mark_of(key)
  local f = redis.call('HMGET', key, 'state', 'tombstone', 'pending_since', 'started_at', 'run', 'versions')
  if f[1] ~= 'pending' and not (f[1] and f[2]) then
    return ''
  end
  return f[1] .. (f[2] and ' g ' or ' - ') .. table.concat({ f[3] or '', f[4] or '', f[5] or '', f[6] or '' }, ' ')
end

-- Returns a job in flight without a worker to the head of the queue, unless another action
-- was requested of it or it is overdue.
local function to_head(id, key, detail)
  local f = redis.call('HMGET', key, 'action', 'expires_at')
  redis.call('SREM', ours .. 'actions', id)
  repaired(key, 'pending', detail)
  if f[2] then
    wait_until('expiry', id, tonumber(f[2]))
  end
  if f[1] and apply_action(id, key, f[1], 'pending') then
    return
  end
  if f[2] and tonumber(f[2]) <= now then
    expire(id, key, 'pending')
    return
  end
  if redis.call('HDEL', key, 'tombstone') == 1 then
    count_tombstones_down(1) -- it is pending again in the place of its tombstone
    redis.call('HSET', key, 'state', 'pending')
  else
    to_front(id, key)
  end
end

-- Makes a failed job of ours of a job that asynq's tools have archived.
local function adopt(id, key)
  local before = redis.call('HGET', key, 'last_error')
  local why = "archived with asynq's tools"
  redis.call('ZREM', asynq .. 'archived', id)
  redis.call('SREM', ours .. 'actions', id)
  finish(id, key, 'failed', before and before ~= '' and why .. '; before that: ' .. before or why)
  append_history(key, { { status = 'failed', event = 'failed', detail = why, by = by } })
end
