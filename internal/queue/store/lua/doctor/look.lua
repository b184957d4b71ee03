-- Checks that jobs are in the index of their state, and returns jobs that are in none to it.
-- The pending list cannot be searched cheaply for one id: the caller has read it.
--
-- KEYS[1] pending
-- ARGV[4] since when that is known, unix ns   ARGV[5] retention of completed jobs, ms
-- ARGV[6...] ids
-- returns {how many jobs there were; found; per id a mark if it must be in the pending list, else ''}
local known_since, retention_ms = ARGV[4], ARGV[5]
local known = tonumber(known_since)
local sets = { scheduled = asynq, retry = asynq, completed = asynq, failed = ours, cancelled = ours,
  expired = ours, paused = ours, waiting = ours, accepted = ours }

-- A held job is in two sets: the held jobs of the queue and the held jobs of its key, '' without a key.
local function held_well(id, name)
  return redis.call('ZSCORE', ours .. 'held', id) and redis.call('ZSCORE', held_of(name or ''), id)
end

local function hold_again(id, key, name, since)
  if not name then
    redis.call('ZREM', ours .. 'held', id)
    to_pending(id, key)
  else
    -- Its place is in one of the two sets, else it is when the key was due.
    local in_all = redis.call('ZSCORE', ours .. 'held', id)
    local place = redis.call('ZSCORE', held_of(name), id) or in_all and tonumber(in_all) * 1000
      or (tonumber(since or '') or 0) / 1000
    hold(id, key, name, tonumber(place))
    redis.call('ZADD', ours .. 'held_keys', 'NX', now_ms, name)
  end
  repaired(key, 'pending', 'was not among the held jobs of its key')
end

-- A job that waits for an instant is in asynq's set, in the set of exact instants, and in
-- the set of the breaker that deferred it.
local function indexed(id, state, reason)
  local deferred = state == 'scheduled' and deferred_of(reason)
  return redis.call('ZSCORE', sets[state] .. state, id)
    and (state ~= 'scheduled' and state ~= 'retry' or redis.call('ZSCORE', ours .. 'due', id))
    and (not deferred or redis.call('ZSCORE', deferred, id))
end

local function put_back(id, key, state, available, ended)
  if state == 'scheduled' or state == 'retry' then
    to_timed(id, key, state, tonumber(available or '') or now)
  elseif state == 'accepted' then
    set_deadline(id, key, tonumber(available or '') or now)
  elseif state == 'completed' then
    local until_ms = (tonumber(ended or '') or now) + tonumber(retention_ms)
    redis.call('ZADD', asynq .. 'completed', int(math.ceil(until_ms / 1000)), id)
  else
    redis.call('ZADD', ours .. state, tonumber(ended or '') and ended or now_ms, id)
  end
  repaired(key, state, 'was in no index')
end

-- Whether a job is in the line of its key. Whether the line goes on is checked with its entries.
local function waits_in_line(id, key)
  local _, name = line_named(redis.call('HGET', key, 'line'))
  return name and redis.call('ZSCORE', line_of(name), id)
end

-- The number of parents that a job waits for is the number of its fields after:<id> which are not
-- '0'.
local function count_parents(id, key, state, count)
  local left = 0
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 6) == 'after:' and redis.call('HGET', key, field) ~= '0' then
      left = left + 1
    end
  end
  local free = state == 'waiting' and left == 0 and not waits_in_line(id, key)
  if left ~= (tonumber(count or '') or 0) or free then
    report('waits_wrong', id)
    if not dry then
      redis.call('HSET', key, 'waits', left)
      if free then
        take_out(id, key, state)
        to_due(id, key)
        repaired(key, 'pending', 'waited for no other job')
      end
    end
  end
end

local marks, jobs = {}, 0
for i = 6, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'tombstone', 'pending_since', 'available_at', 'ended_at', 'expires_at',
    'batch', 'waits', 'action', 'key', 'reason')
  local state, tombstone = f[1], f[2]
  local in_list = false
  local whole = redis.call('HEXISTS', key, 'msg') == 1
  if whole or redis.call('EXISTS', key) == 1 then
    jobs = jobs + 1
    if not whole then
      report('unreadable', id)
    elseif state == 'pending' then
      if tombstone then
        report('tombstone_stale', id)
        if not dry then
          redis.call('HDEL', key, 'tombstone')
        end
      end
      if (tonumber(f[3] or '') or 0) < known then
        in_list = true
      end
    elseif state == 'active' then
      if not redis.call('ZSCORE', asynq .. 'lease', id) and not redis.call('LPOS', asynq .. 'active', id) then
        report('lost', id)
        if not dry then
          to_head(id, key, 'was in flight without a lease, and in no list')
        end
      elseif f[9] and redis.call('SISMEMBER', ours .. 'actions', id) == 0 then
        report('action_missing', id)
        if not dry then
          redis.call('SADD', ours .. 'actions', id)
          redis.call('PUBLISH', namespace .. ':actions', queue .. ' ' .. id .. ' ' .. f[9])
        end
      end
    elseif state == 'archived' then
      if not redis.call('ZSCORE', asynq .. 'archived', id) and not foreign(redis.call('HGET', key, 'msg')) then
        report('archived', id) -- asynq's archive has dropped it
        if not dry then
          adopt(id, key)
        end
      end
    elseif state == 'held' then
      if not held_well(id, f[10]) then
        report('lost', id)
        if not dry then
          hold_again(id, key, f[10], f[3])
        end
      end
      in_list = tombstone
    elseif sets[state or ''] then
      if not indexed(id, state, f[11]) then
        report('lost', id)
        if not dry then
          put_back(id, key, state, f[4], f[5])
        end
      end
      in_list = tombstone
    else
      report('unreadable', id)
    end
    if whole and waits[state or ''] and f[6] then
      local at = redis.call('ZSCORE', ours .. 'expiry', id)
      if not at or tonumber(at) > tonumber(f[6]) then
        report('expiry_missing', id)
        if not dry then
          wait_until('expiry', id, tonumber(f[6]))
        end
      end
    end
    if whole and f[7] and not redis.call('ZSCORE', ours .. 'batch:' .. f[7], id) then
      report('batch_missing', id)
      if not dry then
        -- The header of the message that says when the job was created, unix ms.
        local created = string.match(redis.call('HGET', key, 'msg'), '\10\7created\18.(%d+)') or now_ms
        redis.call('ZADD', ours .. 'batch:' .. f[7], created, id)
        redis.call('ZADD', ours .. 'batches', 'GT', created, f[7])
      end
    end
    if whole and (state == 'waiting' or (state == 'paused' and f[8])) then
      count_parents(id, key, state, f[8])
    end
  end
  marks[#marks + 1] = in_list and mark_of(key) or ''
end
return { jobs, found, marks }
