-- What scripts share: the places of a job, and its moves between them. ARGV[1] of each is
-- the queue; all keys of a queue share its slot, so the ones that are not in KEYS are derived
-- from it. Redis runs all of a script at each call, so prelude.go gives each one only the
-- definitions that it uses; empty lines separate the definitions. A script calls a function that it
-- seldom needs as rare().name: the first such call makes the function.
--
-- A job that leaves the pending list leaves a tombstone in it, because removing from the
-- middle of a list of a million takes 18 ms: its hash has the field tombstone, fetch.lua
-- drops the id, and the key tombstones counts them.
local queue = ARGV[1]
local namespace = string.match(queue, '^[^:]*')
local asynq, ours = 'asynq:{' .. queue .. '}:', namespace .. ':{' .. queue .. '}:'

local function int(n)
  return string.format('%.0f', n)
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now_ms = int(now)

local function task(id)
  return asynq .. 't:' .. id
end

-- Whether a message is of a task of another type, which another program has put into a
-- queue of ours. A message begins with its type: see store.TaskType. Garbage is not one.
local function foreign(msg)
  return string.sub(msg, 1, 18) ~= '\10\16tidegate:publish' and string.sub(msg, 1, 1) == '\10'
end

-- Returns the type of a foreign task, cut off after 100 bytes. In the message the length of the type,
-- a varint, comes before it.
local function type_of(msg)
  local first, n = 3, string.byte(msg, 2) or 0
  while first < 12 and (string.byte(msg, first - 1) or 0) >= 128 do
    first = first + 1
  end
  return string.sub(msg, first, first - 1 + math.min(n, 100))
end

-- A full Redis refuses a script's first write unless it frees memory, and lets the script
-- finish otherwise. Scripts that operators need then, and scripts that let jobs flow on, begin
-- with a write that it accepts.
local function allow_when_full()
  redis.call('DEL', ours .. 'none')
end

-- Notifies the workers of the queue that it has ready jobs or, with ms, that they are to check it in ms
-- milliseconds. Workers do not poll an empty queue. The message is "<queue>" or "<queue> <ms>".
local function wake(ms)
  redis.pcall('PUBLISH', namespace .. ':wake', ms and queue .. ' ' .. int(ms) or queue)
end

-- Keeps the errors of a job's forecasts, now that it starts, of the latest 30 jobs: (real - forecast) / (forecast wait +
-- 1 s), each as '<index of forecastError in Go>:<1 if it lay in the range>'.
local function compare_forecasts(key, text)
  redis.call('HDEL', key, 'eta')
  local errors = {}
  for asked, at, from, to in string.gmatch(text, '(%d+) (%d+) (%d+) (%d+)') do
    local off = (now - at) / (math.max(0, at - asked) + 1000)
    local index = math.min(60, math.floor(math.log(1 + math.abs(off) / 0.02) / math.log(1.15) + 0.5))
    local inside = now >= tonumber(from) and now <= tonumber(to)
    errors[#errors + 1] = int(off < 0 and -index or index) .. (inside and ':1' or ':0')
  end
  redis.call('LPUSH', ours .. 'forecasts', table.concat(errors, ' '))
  redis.call('LTRIM', ours .. 'forecasts', 0, 29)
  redis.call('EXPIRE', ours .. 'forecasts', 2592000)
end

-- Puts an id into `due` or `expiry`, in unix ms, and wakes the workers if it is the first.
local function wait_until(set, id, at)
  redis.call('ZADD', ours .. set, int(at), id)
  if redis.call('ZRANGE', ours .. set, 0, 0)[1] == id then
    wake(math.max(0, at - now))
  end
end

-- Puts a finished parent into the outbox. Its worker releases the children at once; the
-- others do so after a while, in case it dies.
local function release_children_of(id)
  redis.call('ZADD', ours .. 'outbox', now_ms, id)
  wake(5000)
end

-- Returns when a lease of at least ms milliseconds ends, as a score in unix seconds. The score is whole,
-- as asynq's scores are: Redis keeps fractional scores of a small set as text, and parses all of them for
-- each member that it adds.
local function lease_end(ms)
  return int(math.ceil((now + tonumber(ms)) / 1000))
end

-- Shortens leases that end later than their length from now: the clock has gone back. Returns
-- how many, a hundred at most.
local function shorten_leases(ms)
  local late = redis.call('ZRANGEBYSCORE', asynq .. 'lease', '(' .. lease_end(ms), '+inf', 'LIMIT', 0, 100)
  for _, id in ipairs(late) do
    redis.call('ZADD', asynq .. 'lease', 'XX', lease_end(ms), id)
  end
  return #late
end

-- Texts in the history are short: it is read and written as a whole.
local function shorten(text)
  if not text or #text <= 300 then
    return text
  end
  return string.gsub(string.sub(text, 1, 300), '[\192-\255][\128-\191]*$', '') .. '...'
end

-- Appends to the history: entries of {status, event, by, at, took}, and detail (a text) or
-- delay, count and reason, which store.Version puts into words. The first
-- version, "created", is not stored but read from the message; of the others the
-- last 99 are kept.
local function append_history(key, entries)
  local f = redis.call('HMGET', key, 'history', 'versions')
  local history, version = f[1], tonumber(f[2]) or 1
  for _, e in ipairs(entries) do
    version = version + 1
    local line = cjson.encode({ version = version, at = tonumber(e.at) or now, status = e.status,
      event = e.event, detail = shorten(e.detail), by = e.by,
      took = e.took, delay = e.delay, count = e.count, reason = shorten(e.reason) })
    history = history and history .. '\n' .. line or line
    if version > 100 then
      history = string.sub(history, string.find(history, '\n', 1, true) + 1)
    end
  end
  redis.call('HSET', key, 'history', history, 'versions', version)
end

-- The job's status, as users see it.
local function status_of(state)
  return statuses[state] or state
end

-- The breaker of a key holds its jobs: out of the way of the others, in the order in which
-- they reached the head of the queue. That is their place: unix microseconds. `held_keys` has
-- the keys that hold jobs, with the time from which a worker may ask for each again, unix ms.
local function held_of(name)
  return ours .. 'held:' .. name
end

-- Holds a job of the key called name. The caller maintains `held_keys`.
local function hold(id, key, name, place)
  redis.call('ZADD', ours .. 'held', string.format('%.3f', place / 1000), id)
  redis.call('ZADD', held_of(name), int(place), id)
  redis.call('HSET', key, 'state', 'held')
end

-- A job that another key than its own holds, by KEY_BY: `key` is that one while it is held, and
-- `job_key` its own, '' without one. Afterwards `key` is its own again, which is returned.
local function restore_key(key, own)
  redis.call('HDEL', key, 'job_key')
  if own == '' then
    redis.call('HDEL', key, 'key')
    return false
  end
  redis.call('HSET', key, 'key', own)
  return own
end

-- Takes a key out of `held_keys` if it holds no more jobs.
local function forget_key_if_empty(name)
  if redis.call('EXISTS', held_of(name)) == 0 then
    redis.call('ZREM', ours .. 'held_keys', name)
    redis.call('ZREM', ours .. 'turns', name)
  end
end

-- Where calls are scarce, keys take turns: all of their jobs are held, those without a key under the
-- name ''. `turns` has each key by the virtual time of its next job, and `held_keys` has it at
-- in_turns: no worker waits for it. A job takes its cost, divided by the weight of its key; `turn` is the
-- time of the job served last. `turns_owed` has keys that are not in turns and have taken more than that.
local in_turns = '9000000000000000'

local function turn_now()
  return tonumber(redis.call('GET', ours .. 'turn') or '') or 0
end

-- Puts a key behind one job of each key that has its turn.
local function enter_turns(name, at)
  local owed = tonumber(redis.call('ZSCORE', ours .. 'turns_owed', name) or '') or 0
  redis.call('ZADD', ours .. 'held_keys', in_turns, name)
  redis.call('ZADD', ours .. 'turns', string.format('%.17g', math.max(at + 1, owed)), name)
  if owed > 0 then
    redis.call('ZREM', ours .. 'turns_owed', name)
  end
end

-- What `place` says of a job that the run took from the held ones: its place there, what its key was charged
-- ('' = nothing), and that key if it is another than the job's own, by KEY_BY ('' = it is not).
local function taken(text, run)
  local by_run, place, charged, by = string.match(text or '', '^(%S*) (%d+)/?(%S*) ?(.*)$')
  if by_run == run then
    return place, charged, by
  end
end

-- Takes back what a key was charged for a job that has not run.
local function refund(name, charged)
  for _, set in ipairs((charged or '') ~= '' and { 'turns', 'turns_owed' } or {}) do
    if redis.call('ZSCORE', ours .. set, name) then
      redis.call('ZINCRBY', ours .. set, '-' .. charged, name)
    end
  end
end

-- Counts the jobs of keys that take turns: of the first ten keys all, else one of each.
local function count_turns()
  local n = redis.call('ZCARD', ours .. 'turns')
  for _, name in ipairs(n > 0 and redis.call('ZRANGE', ours .. 'turns', 0, 9) or {}) do
    n = n - 1 + redis.call('ZCARD', held_of(name))
  end
  return n
end

-- Lists the held keys that are due, up to 10, after the ms until the first of the others is
-- ('' = there are no others) and the jobs of count_turns. The key called served, if any, comes last
-- of those due. Jobs without a key have no breaker, so they take turns; while keys do, one that has taken more
-- than they is not listed.
local function due_held_keys(served)
  local exactly = string.format('%.3f', clock[1] * 1000 + clock[2] / 1000)
  if served then
    redis.call('ZADD', ours .. 'held_keys', 'XX', 'GT', exactly, served)
  end
  local due = redis.call('ZRANGEBYSCORE', ours .. 'held_keys', '-inf', exactly, 'LIMIT', 0, 10)
  local turn = #due > 0 and redis.call('EXISTS', ours .. 'turns') == 1 and turn_now() or math.huge
  for i = #due, 1, -1 do
    local name = due[i]
    local in_debt = turn < (tonumber(redis.call('ZSCORE', ours .. 'turns_owed', name) or '') or 0)
    if name == '' or in_debt then
      allow_when_full()
      table.remove(due, i)
    end
    if name == '' then
      enter_turns(name, turn_now())
    elseif in_debt then
      redis.call('ZADD', ours .. 'held_keys', exactly, name) -- behind others that are due
    end
  end
  local later = redis.call('ZRANGEBYSCORE', ours .. 'held_keys', '(' .. exactly, '(' .. in_turns, 'WITHSCORES', 'LIMIT', 0, 1)
  return { later[2] and int(math.ceil(tonumber(later[2]) - now)) or '', count_turns(), unpack(due) }
end

-- Jobs in the states scheduled and retry wait for an instant. asynq's sets of that name
-- hold whole seconds, rounded up, because asynq's tools read nothing else; `due` holds
-- the exact instants of both, in unix ms, and is what forward.lua reads. A scheduled job
-- that a breaker deferred is also in a set of that breaker, whose key follows from the
-- job's reason: it is released from there when the breaker closes.
local function deferred_of(reason)
  local breaker = string.match(reason or '', '^breaker_open (.+)$')
  return breaker and ours .. 'deferred:' .. breaker
end

-- Makes held keys due that are not, the latest first. Returns how many, a thousand at most.
local function make_held_keys_due()
  local latest, n = redis.call('ZREVRANGEBYSCORE', ours .. 'held_keys', '(' .. in_turns, '-inf', 'WITHSCORES', 'LIMIT', 0, 1000), 0
  for i = 1, #latest, 2 do
    if tonumber(latest[i + 1]) <= now then
      break
    end
    redis.call('ZADD', ours .. 'held_keys', 'XX', now_ms, latest[i])
    n = n + 1
  end
  return n
end

-- Removes a job from the index of its state.
local function take_out(id, key, state)
  if state == 'pending' then
    -- A job that its line has just put at the head goes without one, or a line that is cancelled would leave one for each
    -- job, in the reverse order.
    if redis.call('HEXISTS', key, 'line') == 1 and redis.call('LINDEX', asynq .. 'pending', -1) == id then
      redis.call('RPOP', asynq .. 'pending')
      return
    end
    redis.call('HSET', key, 'tombstone', '1')
    redis.call('INCR', ours .. 'tombstones')
  elseif state == 'scheduled' or state == 'retry' then
    redis.call('ZREM', asynq .. state, id)
    redis.call('ZREM', ours .. 'due', id)
    local deferred = state == 'scheduled' and deferred_of(redis.call('HGET', key, 'reason'))
    if deferred then
      redis.call('ZREM', deferred, id)
    end
  elseif state == 'completed' then
    redis.call('ZREM', asynq .. state, id)
  elseif state == 'accepted' then
    redis.call('ZREM', ours .. state, id)
    redis.call('HDEL', key, 'available_at', 'wait') -- the deadline
  elseif state == 'held' then
    local f = redis.call('HMGET', key, 'key', 'job_key')
    local name = f[1] or ''
    redis.call('ZREM', ours .. 'held', id)
    redis.call('ZREM', held_of(name), id)
    forget_key_if_empty(name)
    if f[2] then
      restore_key(key, f[2])
    end
  elseif state ~= 'active' then
    redis.call('ZREM', ours .. state, id)
  end
end

-- A job that replaces a pending one enters the list at its back, and is the heir of the other one's place: the first
-- of the two places that is reached counts. Takes the heir of a tombstone out of its own place, and returns its id: the
-- entry of the tombstone is the heir's then. nil if none is pending.
local function heir_of(key)
  local heir = redis.call('HGET', key, 'heir')
  if heir then
    redis.call('HDEL', key, 'heir')
    if redis.call('HGET', task(heir), 'state') == 'pending' then
      take_out(heir, task(heir), 'pending')
      redis.call('HDEL', key, 'tombstone')
      return heir
    end
  end
end

-- Subtracts n ids that were dropped from the pending list.
local function count_tombstones_down(n)
  if n > 0 and (redis.call('LLEN', asynq .. 'pending') == 0 or redis.call('DECRBY', ours .. 'tombstones', n) <= 0) then
    redis.call('DEL', ours .. 'tombstones')
  end
end

-- Before a job waits that has been due before: it is as old as when it was first due. The queue
-- and the sets of held jobs do not show that; `first_due` does, in unix ms, until the job ends or is
-- parked, also while it runs.
local function keep_age(id, key)
  local f = redis.call('HMGET', key, 'first_due', 'pending_since')
  local since = f[1]
  if not since and f[2] then
    since = int(math.floor(tonumber(f[2]) / 1000000))
    redis.call('HSET', key, 'first_due', since)
  end
  if since then
    redis.call('ZADD', ours .. 'first_due', since, id)
  end
end

-- Puts a job at the back of the queue, or back in the place of its tombstone.
local function to_pending(id, key)
  keep_age(id, key)
  if redis.call('HDEL', key, 'tombstone') == 1 then
    count_tombstones_down(1)
  else
    if redis.call('LPUSH', asynq .. 'pending', id) == 1 then
      wake()
    end
  end
  redis.call('HSET', key, 'state', 'pending', 'pending_since', clock[1] .. string.format('%06d', tonumber(clock[2])) .. '000')
end

-- Puts a job back that was fetched and has not run: it is the next to run, or, while jobs
-- of its key are held or keys take turns, the next of its key, which is as if it had not been taken.
local function to_front(id, key)
  local f = redis.call('HMGET', key, 'key', 'run', 'place', 'started_at')
  local place, charged, by = taken(f[3], f[2] or '')
  local rekeyed = (by or '') ~= ''
  local name = rekeyed and by or f[1] or ''
  refund(name, charged)
  local at = redis.call('ZSCORE', ours .. 'held_keys', name)
  if at or place and redis.call('EXISTS', ours .. 'turns') == 1 then
    if not place then
      -- A job from the pending list goes to the time of its fetch, before the jobs of this fetch that are back already.
      local from = (tonumber(f[4] or '') or 0) * 1000
      local back = redis.call('ZRANGEBYSCORE', held_of(name), int(from), int(from + 999), 'WITHSCORES', 'LIMIT', 0, 1)
      place = (tonumber(back[2] or '') or from + 1000) - 1
    end
    if rekeyed then
      redis.call('HSET', key, 'key', name, 'job_key', f[1] or '')
    end
    hold(id, key, name, tonumber(place))
    if not at then
      local owed = tonumber(redis.call('ZSCORE', ours .. 'turns_owed', name) or '')
      redis.call('ZREM', ours .. 'turns_owed', name)
      redis.call('ZADD', ours .. 'held_keys', in_turns, name)
      redis.call('ZADD', ours .. 'turns', string.format('%.17g', (owed or turn_now()) - 0.001), name) -- before others of that time
    end
  else
    redis.call('HDEL', key, 'tombstone') -- of its place as an heir
    if redis.call('RPUSH', asynq .. 'pending', id) == 1 then
      wake()
    end
    redis.call('HSET', key, 'state', 'pending')
  end
end

-- Puts a job where it waits for an instant, in unix ms: 'scheduled' or 'retry'. The
-- reason need not be given if it is in the record.
local function to_timed(id, key, state, at, reason)
  keep_age(id, key)
  redis.call('ZADD', asynq .. state, int(math.ceil(at / 1000)), id)
  wait_until('due', id, at)
  local deferred = state == 'scheduled' and deferred_of(reason or redis.call('HGET', key, 'reason'))
  if deferred then
    redis.call('ZADD', deferred, int(at), id)
  end
  redis.call('HSET', key, 'state', state)
end

-- The end of a wait: at, but not more than a second later than its length from now, in case the clock
-- has gone back. Without a length the job waits for a given instant, which stays. Records the end if it
-- has changed and key is given.
local function wait_end(at, wait, key)
  wait = tonumber(wait or '')
  if not wait or at <= now + wait + 1000 then -- lengths are rounded
    return at
  end
  if key then
    redis.call('HSET', key, 'available_at', int(now + wait))
  end
  return now + wait
end

-- Sets until when the API of an accepted job may report its result, in unix ms, at most a year from now, and returns
-- that. The set `accepted` is by that time. It is apart from `due`: accepted jobs do not become ready, their deadlines
-- pass also while the breaker is open, and workers of older versions drop entries of `due` that they do not know.
local function set_deadline(id, key, at)
  at = math.min(at, now + 31622400000)
  wait_until('accepted', id, at)
  redis.call('HSET', key, 'available_at', int(at), 'wait', int(math.max(0, at - now)))
  return at
end

-- Begins a wait anew that ends later than its length from now.
local function shorten_wait(id, key, state, at, wait)
  if (state == 'scheduled' or state == 'retry') and wait_end(at, wait) < at then
    to_timed(id, key, state, wait_end(at, wait, key))
  end
end

-- Shortens a portion of the leases, of the waits of relative length and of the waits of held keys that
-- last longer than intended, because the clock has gone back. Returns the cursor to go on with, '0' at
-- the end.
local function shorten_all(cursor, lease_ms)
  local more = shorten_leases(lease_ms) == 100
  more = make_held_keys_due() == 1000 or more
  local r = redis.call('ZSCAN', ours .. 'due', cursor, 'COUNT', 100)
  for i = 1, #r[2], 2 do
    local id, at = r[2][i], tonumber(r[2][i + 1])
    if at > now then
      local f = redis.call('HMGET', task(id), 'state', 'wait')
      shorten_wait(id, task(id), f[1], at, f[2])
    end
  end
  return more and r[1] == '0' and cursor or r[1]
end

-- Puts a job that was paused, or has waited for its parents, to pending or, before its own
-- time, to scheduled.
local function to_due(id, key)
  local f = redis.call('HMGET', key, 'available_at', 'wait')
  local at = f[1] and tonumber(f[1])
  at = at and wait_end(at, f[2], key)
  if at and at > now then
    to_timed(id, key, 'scheduled', at)
  else
    to_pending(id, key)
  end
end

-- Parks a job: 'paused' or 'waiting'.
local function park(id, key, state)
  redis.call('ZADD', ours .. state, now_ms, id)
  redis.call('ZREM', ours .. 'first_due', id)
  redis.call('HSET', key, 'state', state)
end

-- Where keys have an order, the jobs of a key wait in its line, in the order in which a worker fetched them, by unix
-- microseconds. The first one is pending, runs, or waits for its time, as jobs without an order do; the others are
-- parked as waiting. `line` in a job's record is '<skip or block> <key>', and says that the job is in the line.
local function line_of(name)
  return ours .. 'line:' .. name
end

-- Returns what `line` of a job's record says: 'skip' or 'block', and the key.
local function line_named(text)
  return string.match(text or '', '^(%a+) (.*)$')
end

-- Whether a job has failed and keeps its place in its line.
local function blocks_line(state, line)
  return state == 'failed' and line_named(line) == 'block'
end

-- Whether a job is in the line of a key, by its record. Scripts that know no lines leave `line` in the records of jobs
-- that have ended.
local function in_line(name, line, state)
  local _, of = line_named(line)
  return of == name and (not final[state] or blocks_line(state, line))
end

-- Returns the first job of a line. If it was parked, it is the next job to run. Drops entries of jobs that are not in the
-- line any more, up to a hundred: asynq's tools delete jobs.
local function first_of_line(name)
  for _ = 1, 100 do
    local id = redis.call('ZRANGE', line_of(name), 0, 0)[1]
    local key = task(id or '')
    local f = redis.call('HMGET', key, 'line', 'state', 'waits')
    local member = in_line(name, f[1], f[2])
    if member and f[2] == 'waiting' and (tonumber(f[3] or '') or 0) <= 0 then
      take_out(id, key, 'waiting')
      keep_age(id, key)
      redis.call('HDEL', key, 'tombstone') -- of its place as an heir
      redis.call('HSET', key, 'state', 'pending')
      if redis.call('RPUSH', asynq .. 'pending', id) == 1 then
        wake()
      end
    end
    if not id or member then
      return id
    end
    redis.call('ZREM', line_of(name), id)
  end
end

-- Whether a job that a worker has fetched is the first one in the line of its key, in which it takes its place. If not,
-- it is parked. line is what its record says of its line so far.
local function is_first(id, key, name, on_fail, line)
  local last = redis.call('ZRANGE', line_of(name), -1, -1, 'WITHSCORES')[2]
  local place = math.max(clock[1] * 1000000 + clock[2], (tonumber(last or '') or 0) + 1)
  if not line then -- an entry is of a deleted job that had its id
    redis.call('ZREM', line_of(name), id)
  end
  redis.call('ZADD', line_of(name), 'NX', int(place), id)
  redis.call('HSET', key, 'line', on_fail .. ' ' .. name)
  if first_of_line(name) == id then
    return true
  end
  park(id, key, 'waiting')
  return false
end

-- Takes a job out of its line, which goes on.
local function leave_line(id, key, line)
  local _, name = line_named(line)
  redis.call('HDEL', key, 'line')
  redis.call('ZREM', line_of(name), id)
  first_of_line(name)
end

-- Appends a completion event to the event stream, which exists only while it has
-- subscribers. Empty values are left out. The first one in 250 ms is announced: subscribers
-- read the queue for longer than that then.
local stream -- false: it does not exist
local announced = false
local function publish_event(id, key, status)
  if stream == nil then
    stream = redis.call('EXISTS', ours .. 'ends') == 1
  end
  if not stream then
    return
  end
  local names = { 'key', 'batch', 'attempt', 'reschedules', 'crashes', 'response_status', 'last_error' }
  local values = redis.call('HMGET', key, unpack(names))
  local entry = { 'id', id, 'status', status, 'at', now_ms }
  for i, name in ipairs(names) do
    local value = values[i]
    if value and value ~= '' then
      entry[#entry + 1] = name
      entry[#entry + 1] = shorten(value)
    end
  end
  redis.call('XADD', ours .. 'ends', '*', unpack(entry))
  if announced then
    return
  end
  announced = true
  local last = tonumber(redis.call('GET', ours .. 'ends:announced') or '')
  if not last or now < last or now >= last + 250 then
    redis.call('SET', ours .. 'ends:announced', now_ms, 'PX', 1000)
    redis.pcall('PUBLISH', namespace .. ':events', queue)
  end
end

-- Finishes a job other than completed: 'failed', 'cancelled' or 'expired'. The outbox
-- releases or cancels its children.
local function finish(id, key, state, problem)
  redis.call('ZADD', ours .. state, now_ms, id)
  redis.call('ZREM', ours .. 'expiry', id)
  redis.call('ZREM', ours .. 'first_due', id)
  redis.call('HSET', key, 'state', state, 'ended_at', now_ms)
  redis.call('HDEL', key, 'action', 'action_by', 'action_reason', 'resume')
  if problem and problem ~= '' then
    redis.call('HSET', key, 'last_error', problem)
  end
  local line = redis.call('HGET', key, 'line')
  if line and not blocks_line(state, line) then
    leave_line(id, key, line)
  end
  if redis.call('HEXISTS', key, 'children') == 1 then
    release_children_of(id)
  end
  publish_event(id, key, state)
end

-- Expires a job, which must have been taken out of its place before.
local function expire(id, key, state, detail, by)
  finish(id, key, 'expired', '')
  append_history(key, { { status = 'expired', event = 'expired', detail = detail or ('while ' .. status_of(state)), by = by } })
end

-- Cancels a job, which must have been taken out of its place before.
local function end_cancelled(id, key, why, by)
  finish(id, key, 'cancelled', why ~= '' and why or 'cancelled')
  append_history(key, { { status = 'cancelled', event = 'cancelled', detail = why, by = by } })
end

-- Applies an action that was requested while the job ran and that it would otherwise
-- leave for target. Returns the new state, or nil if none was requested.
local function apply_action(id, key, action, target)
  if action == 'cancel' or action == 'replace' then
    local why = redis.call('HMGET', key, 'action_by', 'action_reason')
    finish(id, key, 'cancelled', why[2] or 'cancelled')
    append_history(key, { { status = 'cancelled', event = 'cancelled', detail = why[2] or '', by = why[1] or nil } })
    return 'cancelled'
  elseif action == 'pause' then
    local why = redis.call('HMGET', key, 'action_by', 'action_reason')
    park(id, key, 'paused')
    redis.call('HSET', key, 'resume', target)
    redis.call('HDEL', key, 'action')
    append_history(key, { { status = 'paused', event = 'paused', detail = why[2] or '', by = why[1] or nil } })
    return 'paused'
  end
end

-- Completes a job by a result from outside: see outside.lua. Without an output it passes on its latest progress. It must have been taken out of its place before. entries of
-- its history come before the completion.
local function complete_outside(id, key, output, entries, by)
  local f = redis.call('HMGET', key, 'terms', 'line', 'children')
  local retention = tonumber(string.match(f[1] or '', '^%d+') or '') or 86400
  redis.call('HSET', key, 'state', 'completed', 'ended_at', now_ms)
  redis.call('HDEL', key, 'action', 'action_by', 'action_reason', 'resume', 'reason', 'last_error', 'early')
  output = output ~= '' and output or redis.call('HGET', key, 'progress')
  if output then
    redis.call('HSET', key, 'output', output)
  end
  redis.call('SREM', ours .. 'actions', id)
  redis.call('ZREM', ours .. 'expiry', id)
  redis.call('ZREM', ours .. 'first_due', id)
  redis.call('ZADD', asynq .. 'completed', int(clock[1] + retention), id)
  entries[#entries + 1] = { status = 'completed', event = 'completed', by = by }
  append_history(key, entries)
  if f[2] then
    leave_line(id, key, f[2])
  end
  if f[3] then
    release_children_of(id)
  end
  publish_event(id, key, 'completed')
end

-- Ends an attempt that failed after its API had accepted it, by `terms` of its record: '<retention in seconds>
-- <ms until the retry after a timeout, - for none> <the same for explicit> <most retries>'. Otherwise as complete_outside.
-- Returns the state.
local function fail_outside(id, key, trigger, problem, entries, by)
  local f = redis.call('HMGET', key, 'terms', 'expires_at', 'action')
  local timeout, explicit, most = string.match(f[1] or '', '^%d+ (%S+) (%S+) (%d+)$')
  local delay = tonumber(trigger == 'timeout' and timeout or explicit)
  redis.call('HDEL', key, 'early', 'progress')
  redis.call('HSET', key, 'last_error', problem)
  if not delay then
    finish(id, key, 'failed', problem)
    entries[#entries + 1] = { status = 'failed', event = 'failed', detail = problem, by = by }
    append_history(key, entries)
    return 'failed'
  end
  local reason = 'retry ' .. redis.call('HINCRBY', key, 'attempt', 1) .. ' ' .. most .. ' ' .. trigger
  entries[#entries + 1] = { status = 'retry_pending', event = 'retry_scheduled', delay = delay, reason = reason, by = by }
  append_history(key, entries)
  redis.call('HSET', key, 'available_at', int(now + delay), 'reason', reason, 'wait', int(delay))
  if f[2] then
    wait_until('expiry', id, tonumber(f[2]))
  end
  local state = apply_action(id, key, f[3], 'retry')
  if not state then
    to_timed(id, key, 'retry', now + delay, reason)
  end
  return state or 'retry'
end

-- Makes a new job the newest one of its replace-key, which `replace` has as long as the job's record is kept, as '<owner>
-- <key>'. Returns the job before it if that has not started; if it runs, it ends as cancelled unless its call ends it.
local function newest(name, id)
  local old = redis.call('HGET', ours .. 'replace', name)
  redis.call('HSET', ours .. 'replace', name, id)
  local key = task(old or '')
  local names = { 'state', 'replace', 'expires_at', 'action', 'replace_since', 'key', 'job_key', 'order', 'line', 'first_due', 'pending_since', 'place_of', 'action_by', 'action_reason' }
  local f = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do
    f[names[i]] = value
  end
  local state = f.state
  if not state or f.replace ~= name then
    return nil
  end
  redis.call('HSET', key, 'replaced_by', id)
  if (state == 'active' or state == 'accepted') and f.action ~= 'cancel' then
    redis.call('HDEL', key, 'action_by')
    redis.call('HSET', key, 'action', 'replace', 'action_reason', 'replaced by ' .. id)
    if state == 'active' then
      redis.call('SADD', ours .. 'actions', old)
    end
  elseif waits[state] and f.expires_at and tonumber(f.expires_at) <= now then
    take_out(old, key, state)
    expire(old, key, state)
  elseif waits[state] then
    f.id, f.place = old, key
    return f
  elseif blocks_line(state, f.line) then -- it is not retried any more, and would block its key for good
    take_out(old, key, state)
    end_cancelled(old, key, 'replaced by ' .. id)
  end
end

-- Ends a job that has not started, as the new job replaces it: see newest. Unless the new one has a time of its own
-- (timed) or has ended (over), it waits where the other one waited. Returns true if it is not to enter the pending list.
local function take_place(old, id, key, own, order, timed, over)
  local f, state, was = old, old.state, old.place
  local stays = not timed and not over
  local same = stays and (f.job_key or f.key or '') == (own or '') and (f.order or '') == (order or '')
  local since = f.first_due or f.pending_since and int(math.floor(tonumber(f.pending_since) / 1000000))
  if since and stays then
    redis.call('HSET', key, 'first_due', since)
    redis.call('ZADD', ours .. 'first_due', since, id)
  end
  local _, line = line_named(f.line or '')
  if same and line then
    redis.call('ZADD', line_of(line), int(tonumber(redis.call('ZSCORE', line_of(line), old.id) or now * 1000)), id)
    redis.call('ZREM', line_of(line), old.id)
    redis.call('HDEL', was, 'line')
    redis.call('HSET', key, 'line', f.line)
  end
  local elsewhere = same and (state == 'held' or state == 'waiting' and line)
  if state == 'pending' then
    redis.call('HSET', was, 'tombstone', '1')
    redis.call('INCR', ours .. 'tombstones')
    local place = f.place_of or old.id
    if redis.call('HGET', task(place), 'heir') ~= old.id then
      place = old.id
    end
    if stays then
      redis.call('HSET', task(place), 'heir', id)
      redis.call('HSET', key, 'place_of', place)
    end
  elseif state == 'held' and same then
    local name = f.key or ''
    if f.job_key then
      redis.call('HSET', key, 'key', name, 'job_key', f.job_key)
    end
    hold(id, key, name, tonumber(redis.call('ZSCORE', held_of(name), old.id) or now * 1000))
    take_out(old.id, was, state)
  else
    take_out(old.id, was, state)
  end
  end_cancelled(old.id, was, 'replaced by ' .. id)
  if state == 'paused' and not over then
    park(id, key, 'paused')
    redis.call('HSET', key, 'resume', 'pending', 'action_by', f.action_by or '', 'action_reason', f.action_reason or '')
    append_history(key, { { status = 'paused', event = 'paused', detail = 'as ' .. old.id .. ', which it replaces', by = f.action_by or nil } })
    return true
  elseif elsewhere and state == 'waiting' then
    park(id, key, 'waiting')
  end
  return elsewhere
end

-- Subtracts a crash: the worker of the job was taken for dead, but is alive.
local function take_crash_back(key)
  if redis.call('HDEL', key, 'crash_run') == 1 then
    redis.call('HINCRBY', key, 'crashes', -1)
  end
end

-- Prepares a job that was fetched and not started to wait again: it can expire, and an
-- action that was requested meanwhile is applied. Returns the new state then.
local function return_unstarted(id, key, expires_at, action)
  local early, output = string.match(redis.call('HGET', key, 'early') or '', '^(%a+) ?(.*)$') -- of an earlier call
  if early == 'completed' then
    complete_outside(id, key, output, {}, 'callback')
    return early
  elseif early then
    redis.call('HDEL', key, 'early')
  end
  if expires_at then
    wait_until('expiry', id, tonumber(expires_at))
  end
  redis.call('SREM', ours .. 'actions', id)
  return action and apply_action(id, key, action, 'pending')
end

-- Moves the next n pending jobs behind the held jobs of their keys. The keys take turns from then on,
-- unless their breakers hold them. by_id has their keys by KEY_BY, if it is given. Returns how many
-- entries it took from the pending list, tombstones included.
local function sort_pending(n, by_id)
  local ids, gone, all, lists = redis.call('RPOP', asynq .. 'pending', n) or {}, 0, {}, {}
  local at, now_us = turn_now(), clock[1] * 1000000 + clock[2]
  for i, id in ipairs(ids) do
    local key = task(id)
    local f = redis.call('HMGET', key, 'state', 'key')
    local heir = f[1] and f[1] ~= 'pending' and not by_id and heir_of(key)
    if heir then
      gone = gone + 1
      id, key = heir, task(heir)
      f = redis.call('HMGET', key, 'state', 'key')
    end
    if f[1] ~= 'pending' then
      gone = gone + 1
      if f[1] then
        redis.call('HDEL', key, 'tombstone', 'heir')
      end
    else
      local name = by_id and by_id[id] or not by_id and f[2] or ''
      local list = lists[name]
      if not list then
        list = { at = at + i / 1000000, last = tonumber(redis.call('ZRANGE', held_of(name), -1, -1, 'WITHSCORES')[2] or '') or 0 }
        lists[name] = list
      end
      list.last = math.max(list.last + 1, now_us + i)
      list[#list + 1] = int(list.last)
      list[#list + 1] = id
      all[#all + 1] = string.format('%.3f', list.last / 1000)
      all[#all + 1] = id
      if name == (f[2] or '') then
        redis.call('HSET', key, 'state', 'held')
      else
        redis.call('HSET', key, 'state', 'held', 'key', name, 'job_key', f[2] or '')
      end
    end
  end
  for name, list in pairs(lists) do
    redis.call('ZADD', held_of(name), unpack(list))
    if not redis.call('ZSCORE', ours .. 'held_keys', name) then
      enter_turns(name, list.at) -- in the order in which they came
    end
  end
  if #all > 0 then
    redis.call('ZADD', ours .. 'held', unpack(all))
  end
  count_tombstones_down(gone)
  return #ids
end

-- Begins a fetch while calls are scarce: sorts pending jobs, up to 200, unless all are fetched now. Returns
-- whether more are to be sorted, and whether jobs are held.
local function begin_turns(sort, want, has_held)
  local more = false
  local pending = sort and redis.call('LLEN', asynq .. 'pending') or 0
  if pending > (has_held and 0 or want) and redis.call('EXISTS', ours .. 'keyed') == 1 then
    more = pending > sort_pending(200)
    has_held = has_held or redis.call('EXISTS', ours .. 'held_keys') == 1
  end
  return more, has_held
end

-- Takes jobs of keys in turn, or of one key that is not in turns. weights is ARGV[9] of fetch.lua.
local function turns_of(weights, one)
  local at = turn_now()
  local function weight(name)
    local _, last = string.find(weights, '\n' .. name .. '=', 1, true)
    return last and tonumber(string.match(weights, '^[^\n]+', last + 1)) or 1
  end
  local function pop(n)
    local ids, places = {}, {}
    while #ids < n do
      local first = redis.call('ZRANGE', ours .. 'turns', 0, 0, 'WITHSCORES')
      local name = first[1]
      if not name then
        break
      end
      local job = redis.call('ZPOPMIN', held_of(name))
      if job[1] then
        at = math.max(at, tonumber(first[2])) -- it is less for a key whose job was put back
        ids[#ids + 1] = job[1]
        places[#places + 1] = tonumber(job[2])
        redis.call('ZADD', ours .. 'turns', string.format('%.17g', tonumber(first[2]) + 1 / weight(name)), name)
      end
      forget_key_if_empty(name)
    end
    if #ids > 0 then
      redis.call('ZREM', ours .. 'held', unpack(ids))
    end
    return ids, places
  end
  -- Charges a key for a job, and returns how much. In turns, each job was taken for one of cost 1.
  local function charge(name, msg)
    local cost = string.find(msg, '\10\4cost\18', 1, true) and tonumber(string.match(msg, '\10\4cost\18.(%d+)') or '') or 1
    local rest = one and cost or cost - 1
    if rest > 0 then
      if redis.call('ZSCORE', ours .. 'turns', name) then
        redis.call('ZINCRBY', ours .. 'turns', string.format('%.17g', rest / weight(name)), name)
      else
        local owed = tonumber(redis.call('ZSCORE', ours .. 'turns_owed', name) or '') or 0
        redis.call('ZADD', ours .. 'turns_owed', string.format('%.17g', math.max(at, owed) + cost / weight(name)), name)
      end
    end
    return string.format('%.17g', cost / weight(name))
  end
  local function finish()
    if redis.call('EXISTS', ours .. 'turns') == 0 then
      redis.call('DEL', ours .. 'turn', ours .. 'turns_owed')
      return
    end
    redis.call('SET', ours .. 'turn', string.format('%.17g', at))
    redis.call('ZREMRANGEBYSCORE', ours .. 'turns_owed', '-inf', string.format('%.17g', at))
  end
  -- Takes back what pop charged a key for a job that is parked in its line.
  local function back(name)
    refund(name, string.format('%.17g', 1 / weight(name)))
  end
  return { pop = pop, charge = charge, back = back, finish = finish }
end
