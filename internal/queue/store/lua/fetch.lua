-- Fetches jobs for a worker, from the head of the queue or from the held ones of a key.
-- Replaces asynq's dequeueCmd and does the same writes for each job.
--
-- KEYS[1] pending   KEYS[2] paused   KEYS[3] active   KEYS[4] lease
-- ARGV[1] queue     ARGV[2] length of a lease in ms
-- ARGV[3] how many jobs at most        ARGV[4] worker
-- ARGV[5] the run: a unique name of this fetch, which the outcomes of its jobs carry
-- ARGV[6] the key whose held jobs to fetch ('' = from the head of the queue)
-- ARGV[7] 1 if the worker itself holds jobs behind others: by KEY_BY their keys differ from their records' keys
-- ARGV[8] whether calls are scarce, so that keys take turns: '' no, '1' yes, 'by' yes, and the worker
--   itself sorts pending jobs, by KEY_BY
-- ARGV[9] weights of keys that are not 1, as '\n<key>=<weight>...\n'
-- ARGV[10] 1: the call decides for other jobs, so one that has not been called is preferred; see untried
-- ARGV[11] 'key': jobs of a key run one at a time, in order, unless a job says otherwise
-- ARGV[12] what a job of that kind does that fails: skip or block; see prelude.lua, "line"
-- returns {how many ids were dropped, expired ones included, how many jobs were held or wait in the lines of their keys,
--   the held keys that are due (see due_held_keys; 0 without held keys), how many jobs
--   expired, 1 if the queue is paused, 2 if none is pending any more, 3 if more are to be sorted or
--   4 if the jobs are of keys that take turns, the types of tasks of other programs as {type, how many, ...} or 0 without any, job, ...}, each job
--   as {id, msg} or {id, msg, attempt, reschedules, crashes, expires_at, ms until then (nil =
--   it never expires), its key, its place among the held jobs (nil if it was not held and has no key) and, if its
--   last call was refused, `refusals` with the ms since then in place of when}
--
-- Ids whose job is not pending any more (it was cancelled, paused, expired, or completed
-- by a worker that had outlived its lease) are dropped, and jobs whose time is over
-- expire. Tasks of other programs go to asynq's archive, where its tools show them: they
-- must not stop the queue. Jobs of a held key go behind its held jobs. Jobs of keys that take
-- turns come before pending ones, which are younger. The field
-- `events` says that the event stream existed, so that complete.lua need not look.
local pending_key, paused_key, active_key, lease_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease_ms, want, worker, run, name = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local source = name == '' and 'pending' or 'held'
local behind = ARGV[7] ~= '1'
local order, on_fail = ARGV[11], ARGV[12]
local scarce = name == '' and ARGV[8] ~= ''
local more -- whether more jobs are to be sorted
local jobs, active, leases = { 0, 0, 0, 0, 0, 0 }, {}, {}
local lease = lease_end(lease_ms)
local expiring = {} -- those with an expiry

-- Made only while jobs are held.
local hold_behind, pop_held
local turns, charge
local to_hold, held = nil, 0 -- the jobs to hold, by key, and their number, jobs that are parked in lines included
local streamed = false -- whether the event stream exists
-- All of them are rare: one EXISTS is enough.
local unusual = redis.call('EXISTS', paused_key, ours .. 'held_keys', ours .. 'ends')
local has_held = unusual > 0 and redis.call('EXISTS', ours .. 'held_keys') == 1
if unusual > 0 then
  streamed = redis.call('EXISTS', ours .. 'ends') == 1
end
if unusual > (streamed and 1 or 0) or scarce then
  if redis.call('EXISTS', paused_key) == 1 then
    return { 0, 0, 0, 0, 1, 0 }
  end
  if scarce then
    more, has_held = rare().begin_turns(ARGV[8] == '1', want, has_held)
  end
  local now_us = clock[1] * 1000000 + clock[2]
  local key_held = {}
  to_hold = {}

  -- Holds a job if others of its key are held: behind them, whatever the clock does.
  hold_behind = function(id, key, of)
    if key_held[of] == nil then
      key_held[of] = redis.call('ZSCORE', ours .. 'held_keys', of) and true or false
    end
    if not key_held[of] then
      return false
    end
    local list = to_hold[of]
    if not list then
      local last = redis.call('ZRANGE', rare().held_of(of), -1, -1, 'WITHSCORES')[2]
      list = { last = last and tonumber(last) or 0 }
      to_hold[of] = list
    end
    list.last = math.max(list.last + 1, now_us + held)
    list[#list + 1] = int(list.last)
    list[#list + 1] = id
    held = held + 1
    redis.call('HSET', key, 'state', 'held')
    return true
  end
end
if name ~= '' then
  pop_held = function(n)
    local ids, places = {}, {}
    local first = redis.call('ZRANGE', rare().held_of(name), 0, n - 1, 'WITHSCORES')
    for i = 1, #first, 2 do
      ids[#ids + 1] = first[i]
      places[#places + 1] = tonumber(first[i + 1])
    end
    if #ids > 0 then
      redis.call('ZREM', rare().held_of(name), unpack(ids))
      redis.call('ZREM', ours .. 'held', unpack(ids))
    end
    return ids, places
  end
  if has_held and redis.call('EXISTS', ours .. 'turns') == 1 then
    charge = rare().turns_of(ARGV[9], true).charge
  end
elseif has_held and redis.call('EXISTS', ours .. 'turns') == 1 then
  turns = rare().turns_of(ARGV[9])
  pop_held, charge, source = turns.pop, turns.charge, 'held'
end

-- untried takes the youngest of the last 100 pending jobs that was never rescheduled, else the youngest whose last call
-- was not refused. Jobs that come back are at the end of the list, too. It leaves jobs of keys in order.
local function untried()
  local found
  for _, id in ipairs(redis.call('LRANGE', pending_key, 0, 99)) do
    local f = redis.call('HMGET', task(id), 'key', 'refusals', 'reschedules')
    if not f[1] and not f[2] then
      found = f[3] and (found or id) or id
      if not f[3] then
        break
      end
    end
  end
  return found and redis.call('LREM', pending_key, 1, found) == 1 and { found }
end

-- If all ids were dropped, fetch more, up to a bound: there can be many dropped ids in a row.
local rounds, gone, tombstones, archived, drained = 0, 0, 0, 0, false
local names = { 'msg', 'state', 'attempt', 'reschedules', 'crashes', 'expires_at', 'key', 'refusals', 'job_key', 'eta', 'order', 'line' }
local types -- of archived tasks: how many, by type
repeat
  rounds = rounds + 1
  local ids, places
  if pop_held then
    ids, places = pop_held(want - #active)
    if turns and #ids == 0 then
      pop_held, source = nil, 'pending'
    end
  end
  if not pop_held then
    local asked = want - #active
    ids = ARGV[10] == '1' and untried() or redis.call('RPOP', pending_key, asked)
    drained = not ids or #ids < asked
  end
  for i, id in ipairs(ids or {}) do
    local key, by = task(id), nil
    local f = redis.call('HMGET', key, unpack(names))
    local heir = f[2] and f[2] ~= 'pending' and not pop_held and rare().heir_of(key)
    if heir then
      gone, tombstones = gone + 1, tombstones + 1
      id, key = heir, task(heir)
      f = redis.call('HMGET', key, unpack(names))
    end
    if f[9] and pop_held then
      by = f[7]
      f[7] = rare().restore_key(key, f[9])
    end
    if not f[1] or f[2] ~= source then
      gone = gone + 1
      if not pop_held then
        tombstones = tombstones + 1
        if f[2] then
          redis.call('HDEL', key, 'tombstone')
        end
      end
    elseif foreign(f[1]) then
      redis.call('ZADD', asynq .. 'archived', clock[1], id)
      redis.call('HSET', key, 'state', 'archived')
      archived = archived + 1
      types = types or {}
      local of = type_of(f[1])
      types[of] = (types[of] or 0) + 1
    elseif f[6] and tonumber(f[6]) <= now then
      rare().expire(id, key, source)
      jobs[4] = jobs[4] + 1
    elseif to_hold and f[7] and behind and not pop_held and hold_behind(id, key, f[7]) then
      -- It waits behind held jobs of its key, which may not be in the line yet.
    elseif f[7] and (f[12] or (f[11] or order) == 'key') and not rare().is_first(id, key, f[7], on_fail, f[12]) then
      held = held + 1
      if turns and pop_held then
        turns.back(by or f[7])
      end
    else
      if f[10] then
        rare().compare_forecasts(key, f[10])
      end
      local job = { id, f[1] }
      if pop_held or f[3] or f[4] or f[5] or f[6] or f[7] or f[8] then
        job = { id, f[1], f[3], f[4], f[5], f[6], f[6] and int(tonumber(f[6]) - now), f[7] }
      end
      if f[7] or places then
        job[9] = int(places and places[i] or clock[1] * 1000000 + clock[2] + #active)
      end
      if f[8] then
        local what, at = string.match(f[8], '^(.*) (%d+)$')
        job[9] = job[9] or false
        job[10] = what and what .. ' ' .. int(math.max(0, now - at)) or ''
      end
      if pop_held then
        local charged = charge and '/' .. charge(by or f[7] or '', f[1]) or ''
        redis.call('HSET', key, 'state', 'active', 'started_at', now_ms, 'by', worker, 'run', run,
          'place', run .. ' ' .. job[9] .. charged .. (by and ' ' .. by or ''))
      else
        redis.call('HSET', key, 'state', 'active', 'started_at', now_ms, 'by', worker, 'run', run)
      end
      if streamed then
        redis.call('HSET', key, 'events', '1')
      end
      if f[5] and tonumber(f[5]) > 0 then -- a suspect, which may have to wait for another one
        redis.call('HSET', key, 'unstarted', run)
      end
      if f[6] then
        expiring[#expiring + 1] = id
      end
      active[#active + 1] = id
      leases[#leases + 1] = lease
      leases[#leases + 1] = id
      jobs[#jobs + 1] = job
    end
  end
until not ids or #ids == 0 or #active >= want or (#active > 0 and held == 0)
  or rounds * want >= 1000 or jobs[4] >= 100 or held >= 100
if #active > 0 then
  redis.call('LPUSH', active_key, unpack(active))
  redis.call('ZADD', lease_key, unpack(leases))
  if #expiring > 0 then
    redis.call('ZREM', ours .. 'expiry', unpack(expiring))
  end
end
if turns then
  turns.finish()
elseif pop_held then
  rare().forget_key_if_empty(name)
end
if tombstones > 0 then
  rare().count_tombstones_down(tombstones)
end
jobs[1] = jobs[4] + gone + archived
jobs[2] = held
jobs[5] = drained and 2 or more and 3 or turns and pop_held and 4 or 0
if types then
  jobs[6] = {}
  for of, n in pairs(types) do
    jobs[6][#jobs[6] + 1] = of
    jobs[6][#jobs[6] + 1] = n
  end
end
if to_hold then
  for of, list in pairs(to_hold) do
    redis.call('ZADD', rare().held_of(of), unpack(list))
    for i = 1, #list, 2 do
      list[i] = string.format('%.3f', list[i] / 1000)
    end
    redis.call('ZADD', ours .. 'held', unpack(list))
  end
  if has_held then
    jobs[3] = rare().due_held_keys(name ~= '' and name)
  end
end
return jobs
