-- Checks a part of one index of a queue: an entry whose job is gone or, by its record, in another
-- place is removed.
--
-- KEYS[1] pending
-- ARGV[4] the index   ARGV[5] the check of its entries: the name of one of the checks below
-- ARGV[6] of what: see the check
-- ARGV[7] cursor      ARGV[8] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local set, check, of, cursor, max = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local scan, remove = 'ZSCAN', 'ZREM'
if check == 'actions' then
  scan, remove = 'SSCAN', 'SREM'
elseif check == 'replace' then
  scan, remove = 'HSCAN', 'HDEL'
end

local function stale(state)
  return state and 'entry_stale' or 'entry_without_job'
end

-- Each returns what is wrong with an entry, nil if nothing is, and what repairs it, nil to remove it.
local checks = {}

-- Jobs in one of the states of, separated by spaces ('' = any). A wait that ends later than its
-- length from now, because the clock went back, begins anew.
function checks.jobs(id, score)
  local f = redis.call('HMGET', task(id), 'state', 'wait')
  if not f[1] or of ~= '' and not string.find(' ' .. of .. ' ', ' ' .. f[1] .. ' ', 1, true) then
    return stale(f[1])
  elseif set == ours .. 'due' and score > wait_end(score, f[2]) then
    return 'wait_ahead', function() shorten_wait(id, task(id), f[1], score, f[2]) end
  end
end

-- Jobs that a breaker deferred.
function checks.deferred(id)
  local f = redis.call('HMGET', task(id), 'state', 'reason')
  if f[1] ~= 'scheduled' or deferred_of(f[2]) ~= set then
    return stale(f[1])
  end
end

-- Leases; of is the length of a lease in ms. A lease that ends later than this length from now was set
-- before the clock went back. If the job's state is active and it is not in the list of jobs in flight,
-- the list has lost it.
function checks.lease(id, score)
  if redis.call('LPOS', asynq .. 'active', id) then
    if score > tonumber(lease_end(of)) then
      return 'lease_ahead', function() redis.call('ZADD', set, 'XX', lease_end(of), id) end
    end
  elseif redis.call('HGET', task(id), 'state') ~= 'active' then
    return 'lease_stale'
  else
    return 'lost', function()
      redis.call('LPUSH', asynq .. 'active', id)
      repaired(task(id), 'active', 'was missing from the list of jobs in flight')
    end
  end
end

-- asynq's archive, where only asynq's own tools put jobs, and which drops all but 10,000. Tasks of
-- other programs stay there: see fetch.lua.
function checks.archived(id)
  local f = redis.call('HMGET', task(id), 'state', 'msg')
  if f[1] ~= 'archived' then
    return stale(f[1])
  elseif f[2] and foreign(f[2]) then
    return 'foreign', function() end
  end
  return 'archived', function() adopt(id, task(id)) end
end

-- Jobs in flight with a requested action. Workers remove completed ones, within a second.
function checks.actions(id)
  local f = redis.call('HMGET', task(id), 'state', 'action')
  if f[1] ~= 'completed' and (f[1] ~= 'active' or not f[2]) then
    return stale(f[1])
  end
end

-- Finished parents. One that waits or runs again does not belong there; a missing one does, as long
-- as it has children.
function checks.outbox(id)
  local state = redis.call('HGET', task(id), 'state')
  if not state and redis.call('EXISTS', ours .. 'children:' .. id) == 0 or state == 'active' or state == 'accepted' or waits[state or ''] then
    return stale(state)
  end
end

-- Batches and keys: each has jobs.
function checks.batches(name)
  return redis.call('EXISTS', ours .. 'batch:' .. name) == 0 and 'batch_empty'
end

function checks.held_keys(name, at)
  if redis.call('EXISTS', held_of(name)) == 0 then
    return 'key_empty'
  elseif at == tonumber(in_turns) and not redis.call('ZSCORE', ours .. 'turns', name) then
    return 'key_unlisted', function() enter_turns(name, turn_now()) end
  end
end

-- Keys that take turns: they hold jobs, and their breakers do not.
function checks.turns(name)
  return tonumber(redis.call('ZSCORE', ours .. 'held_keys', name) or '') ~= tonumber(in_turns) and 'key_empty'
end

-- The line of a key: its jobs are in it until they have ended. One that has failed may block it.
function checks.line(id)
  local f = redis.call('HMGET', task(id), 'state', 'line')
  if not in_line(of, f[2], f[1]) then
    return stale(f[1])
  end
end

-- The newest job of each replace-key.
function checks.replace(name, _, id)
  local of_job = redis.call('HGET', task(id), 'replace')
  return of_job ~= name and stale(of_job)
end

-- Jobs of one batch, and the held jobs of one key. Its name is listed, as long as it has jobs.
local function of_name(field, state)
  return function(id)
    local f = redis.call('HMGET', task(id), 'state', field)
    if not f[1] or state and f[1] ~= state or (f[2] or '') ~= of then
      return stale(f[1])
    end
  end
end
checks.batch, checks.held = of_name('batch'), of_name('key', 'held')
local names = { batch = { 'batches', 'batch_unlisted' }, held = { 'held_keys', 'key_unlisted' } }

local r, good = redis.call(scan, set, cursor, 'COUNT', max), false
local width = scan == 'SSCAN' and 1 or 2
for i = 1, #r[2], width do
  local id = r[2][i]
  local kind, repair = checks[check](id, tonumber(r[2][i + 1] or ''), r[2][i + 1])
  good = good or not kind
  if kind then
    report(kind, id)
    if not dry and repair then
      repair()
    elseif not dry then
      redis.call(remove, set, id)
    end
  end
end
if check == 'line' and not dry then
  first_of_line(of) -- goes on, if what held it is gone
end
local list = names[check]
if list and good and not redis.call('ZSCORE', ours .. list[1], of) then
  report(list[2], of)
  if not dry then
    if of == '' then
      enter_turns(of, turn_now())
    else
      redis.call('ZADD', ours .. list[1], check == 'batch' and redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2] or now_ms, of)
    end
  end
elseif list and not dry and redis.call('EXISTS', set) == 0 then
  redis.call('ZREM', ours .. list[1], of)
  if check == 'held' then
    redis.call('ZREM', ours .. 'turns', of)
  end
end
return { r[1], #r[2] / width, found }
