-- prelude: what the breaker's scripts share. It stands in front of every script
-- before its SHA is computed.
--
-- A destination has a breaker, and each of its keys may have one under it. A
-- script acts on one name: the destination ("D"), or a key of it ("D/K"), and
-- then on both.
--
-- KEYS (all in the slot of {destination})
--   1  hash: the destination's breaker, in fields that a person can read
--   2  hash: breakers that instances must know of (all but plainly CLOSED ones),
--      name -> record as JSON; ":version" is the highest revision any breaker of
--      the destination ever had, ":transition" that of the last transition,
--      ":capacity" how many calls the instances make at once, ":floor" the
--      highest revision that KEYS[5] has forgotten, ":origin" the id of this data:
--      channels are common to all databases of a server, so messages carry it
--   3  list: transitions of all of the destination's breakers as JSON, newest
--      first, capped
--   4  sorted set: ids of reports already counted, by time
--   5  sorted set: names by the revision of their last change
--   6  sorted set: names of keys by the instant, ms, from which on they wait for
--      nothing but the next call
--   7  hash: instances, id -> "capacity expiry"
--   8  hash: theoretical arrival time, µs, by each rate that workers are configured with
--      ("interval burst", see rate_of)
--   9  list: transitions of the destination's own breaker
--  10  list: its incidents that are over
--  11  sorted set: its calls in flight that are counted, by the end of their lease
--  12  hash: calls in flight that are not, instance -> "sequence count"
--  13… of a key: hash, transitions, incidents, calls in flight, uncounted ones
-- ARGV
--   1  clock: "" means Redis TIME; tests pass an instant in microseconds
--   2  name of the destination
--   3  key, "" for the destination's own breaker
--   4  channel that changes are published on
--   5  who asks (an instance or an operator), for the history
--   6  cooldown, ms
--   7  factor of the cooldown per level
--   8  longest cooldown, ms
--   9  part that is added to a cooldown that has grown: a random fraction
--  10  id of the instance, "" for an operator
--  11… what the script itself takes
-- Returns (every script but snapshot and register): {result, now in µs, version,
--   name that decided, what is added, record, record of the key ('' without)}

local NOTCLOSED, EVENTS, REPORTS, CHANGES, IDLE = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local INSTANCES = KEYS[7]
local DESTINATION, KEY, CHANNEL, WHO, INSTANCE = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[10]
local COOLDOWN, MULTIPLIER, MAX_COOLDOWN = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local JITTER = tonumber(ARGV[9])

local VERSION, TRANSITION, CAPACITY, FLOOR, ORIGIN = ':version', ':transition', ':capacity', ':floor', ':origin' -- no name has a colon first
local EVENTS_LIMIT = 1000     -- transitions kept
local INCIDENTS_LIMIT = 200   -- incidents kept
local KEY_LIMIT = 20          -- of either, for a key
local KEY_KEPT = 604800000    -- ms that a key's history is kept: 7 days
local IDLE_AFTER = 3600000    -- ms after which a key that nobody asks for is forgotten
local REPORTS_KEPT = 60000    -- ms; longer than any client resends a command
local PROBE_BACKOFF = 1000    -- ms before the probe after one that told nothing
local RAMP_UNKNOWN = 64       -- end of the slow start where no capacity is known
local RAMP_LIMIT = 1024       -- and where it is very large
local SAME_WINDOW = 2000      -- ms by which two tellings of one reset differ
local TOOK_PART = 50          -- instances named in an incident

-- The fields of the hash and of the record, in the order a person reads them.
-- Instants are unix ms on Redis's clock, 0 is "none"; metered is since when calls
-- are counted because little is left; quiet_since since when the level of a CLOSED
-- breaker has not fallen.
local TEXTS = { 'state', 'cause', 'incident', 'incident_cause', 'reason', 'tripped_by', 'forced', 'instances', 'probe_by', 'probe_token' }
local NUMBERS = { 'failures', 'last_failure', 'generation', 'revision', 'open_until', 'opened_at', 'quiet_since', 'probes',
  'wasted', 'rescheduled', 'level', 'last_cooldown', 'ramp', 'ramp_ok', 'forced_until', 'metered', 'budget_left',
  'budget_reset', 'budget_limit', 'probe_started', 'probe_until', 'probe_after', 'probe_retries', 'updated_at' }

local PLACES = { hash = 1, history = 9, incidents = 10, inflight = 11, joined = 12 }
local KEY_PLACES = { hash = 13, history = 14, incidents = 15, inflight = 16, joined = 17 }

local now_us, now -- µs; ms with a fraction
local version, transitioned, capacity

-- Lua's own conversion and cjson keep 14 digits; a generation has 16.
local function int(n)
  return string.format('%.0f', n)
end

-- What no breaker can have written (no number, negative, past 2^53) reads as 0,
-- so that a damaged field cannot hold a breaker open for ever.
local function number(text)
  local n = tonumber(text or '')
  if not n or n ~= n or n < 0 or n > 9007199254740991 then
    return 0
  end
  return n
end

-- rate_of is the interval, µs, and the burst of a rate.
local function rate_of(name)
  local interval, burst = string.match(name, '^(%S+) (%S+)$')
  return tonumber(interval), tonumber(burst)
end

-- each_rate calls visit with the name, interval and burst of each rate that workers call
-- by, and its arrival time: now where the clock went back.
local function each_rate(visit)
  local stored = redis.call('HGETALL', KEYS[8])
  for i = 1, #stored, 2 do
    local interval, burst = rate_of(stored[i])
    local at = number(stored[i + 1])
    if at > now_us + burst * interval + 1 then
      at = now_us
    end
    visit(stored[i], interval, burst, at)
  end
end

local function read_clock()
  if ARGV[1] ~= '' then
    now_us = tonumber(ARGV[1])
  else
    local t = redis.call('TIME')
    now_us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  end
  now = now_us / 1000
end

-- plain says that instances need not know of the breaker: CLOSED, and any call
-- may start.
local function plain(b)
  return b.state == 'CLOSED' and b.failures == 0 and b.ramp == 0 and b.metered == 0 and b.forced == ''
end

-- What was to wait for when the clock went backwards is to wait for now.
local function mend_clock(b)
  if b.updated_at <= now or plain(b) then
    return
  end
  local back = b.updated_at - now
  for _, field in ipairs({ 'open_until', 'probe_started', 'probe_until', 'probe_after', 'metered', 'budget_reset', 'forced_until' }) do
    if b[field] > 0 then
      b[field] = math.max(1, math.ceil(b[field] - back))
    end
  end
  if back > 1000 then
    redis.call('DEL', b.inflight_key) -- their leases would not end for as long
  end
  b.updated_at, b.dirty = math.floor(now), true
end

-- fall_back lowers the level of a CLOSED breaker by one for each time that it has been
-- CLOSED for as long as its last cooldown. Every reader comes to the same level, so it
-- is not written.
local function fall_back(b)
  b.quiet_since = math.min(b.quiet_since, math.floor(now)) -- the clock may have gone backwards
  if b.state == 'CLOSED' and b.level > 0 then
    local quiet = math.floor((now - b.quiet_since) / math.max(1, b.last_cooldown))
    b.level = math.max(0, b.level - quiet)
    b.quiet_since = b.quiet_since + quiet * b.last_cooldown
  end
end

-- read returns one breaker as a table. b.dirty says that it must be written even
-- if the script changes nothing.
local function read(name, places, listed)
  local stored = {}
  local flat = redis.call('HGETALL', KEYS[places.hash])
  for i = 1, #flat, 2 do
    stored[flat[i]] = flat[i + 1]
  end
  local b = { name = name }
  for place, i in pairs(places) do
    b[place .. '_key'] = KEYS[i]
  end
  for _, field in ipairs(TEXTS) do
    b[field] = stored[field] or ''
  end
  for _, field in ipairs(NUMBERS) do
    b[field] = number(stored[field])
  end
  if b.state ~= 'OPEN' and b.state ~= 'HALF_OPEN' then
    b.state = 'CLOSED' -- also a lost hash
  end
  version = math.max(version, b.revision, b.generation)
  mend_clock(b)
  fall_back(b)
  if b.forced ~= '' and b.forced_until > 0 and now >= b.forced_until then
    b.forced, b.forced_until, b.reason, b.tripped_by, b.dirty = '', 0, '', '', true
  end
  if plain(b) == (listed and true or false) then
    b.dirty = true -- one of both was lost, and instances mirror what is not so
    local was = listed and cjson.decode(listed)
    if was and (was.state == 'OPEN' or was.state == 'HALF_OPEN') then
      -- Its incident is over, and whoever waits for that is to hear of it.
      b.incident, b.instances, b.incident_cause = was.incident or '', was.instances or '', was.incident_cause or ''
      for _, field in ipairs({ 'opened_at', 'probes', 'wasted', 'rescheduled' }) do
        b[field] = was[field] or 0
      end
      b.opened = { was.reason or '', was.tripped_by or '' }
      b.event = { from = was.state, cause = 'lost' }
    end
  end
  return b
end

-- read_breakers returns the destination's breaker and the key's, nil without a key.
local function read_breakers()
  read_clock()
  local listed = redis.call('HMGET', NOTCLOSED, VERSION, TRANSITION, CAPACITY, DESTINATION, DESTINATION .. '/' .. KEY)
  version, transitioned, capacity = number(listed[1]), number(listed[2]), number(listed[3])
  local parent = read(DESTINATION, PLACES, listed[4])
  if KEY == '' then
    return parent, nil
  end
  local child = read(DESTINATION .. '/' .. KEY, KEY_PLACES, listed[5])
  child.key = KEY
  return parent, child
end

-- read_breaker returns the one that the name means.
local function read_breaker()
  local parent, child = read_breakers()
  return child or parent
end

local function until_reset(b)
  return b.state == 'OPEN' and b.open_until == 0 and b.cause == 'manual'
end

-- cooled says whether an OPEN breaker's time has come.
local function cooled(b)
  return b.state == 'OPEN' and now >= b.open_until and not until_reset(b)
end

-- cooldown is how long the next opening without a hint lasts, ms.
local function cooldown(b)
  local length = COOLDOWN * MULTIPLIER ^ b.level
  if length > COOLDOWN then
    length = length * (1 + JITTER)
  end
  return math.max(1, math.min(length, MAX_COOLDOWN))
end

-- raise makes the next cooldown longer, unless it is as long as it can be: what goes
-- beyond would have to be fallen back from.
local function raise(b)
  if MULTIPLIER > 1 and COOLDOWN * MULTIPLIER ^ b.level < MAX_COOLDOWN then
    b.level = b.level + 1
  end
end

-- hinted is a hint within bounds, ms.
local function hinted(hint)
  return math.max(1, math.min(hint, MAX_COOLDOWN))
end

local function clear_probe(b)
  b.probe_token, b.probe_by = '', ''
  b.probe_started, b.probe_until, b.probe_after = 0, 0, 0
end

-- took_part notes who has seen the incident.
local function took_part(b)
  if INSTANCE == '' or string.find(',' .. b.instances .. ',', ',' .. WHO .. ',', 1, true) then
    return
  end
  local _, commas = string.gsub(b.instances, ',', ',')
  if commas < TOOK_PART - 1 then
    b.instances = b.instances == '' and WHO or b.instances .. ',' .. WHO
    b.dirty = true
  end
end

local function transition(b, to, cause)
  b.event = { from = b.state, cause = cause }
  b.state = to
  b.probe_retries = 0
  clear_probe(b)
end

local function clear_budget(b)
  b.metered, b.budget_left, b.budget_reset = 0, 0, 0
end

-- open opens the breaker for length ms; nil means until it is reset, 'cooldown'
-- as long as is its turn.
local function open(b, cause, length)
  if b.state == 'CLOSED' then
    b.incident, b.opened_at, b.probes, b.rescheduled, b.instances = '', math.floor(now), 0, 0, ''
    b.wasted = (cause == 'manual' or cause == 'budget') and 0 or math.max(1, b.failures)
    if b.ramp > 0 and cause ~= 'manual' and cause ~= 'budget' then
      raise(b) -- it closed too soon
    end
  end
  if b.state == 'CLOSED' or cause == 'manual' or b.cause == 'manual' then
    b.incident_cause = cause -- a failed probe does not change why the API's limit opened it
  end
  transition(b, 'OPEN', cause)
  b.cause, b.reason, b.tripped_by, b.forced, b.forced_until = cause, '', '', '', 0
  b.ramp, b.ramp_ok = 0, 0
  clear_budget(b)
  if length == 'cooldown' then
    length = cooldown(b)
  end
  if length and cause ~= 'manual' then
    b.last_cooldown = math.ceil(length)
  end
  b.open_until = length and math.ceil(now + length) or 0
  took_part(b)
end

local function half_open(b)
  transition(b, 'HALF_OPEN', 'cooldown')
  b.open_until = 0
end

-- ramp_end is the number of calls in flight from which on a slow start would
-- limit nothing.
local function ramp_end()
  return math.min(capacity > 0 and capacity or RAMP_UNKNOWN, RAMP_LIMIT)
end

local function close(b, cause)
  b.opened = { b.reason, b.tripped_by } -- the incident's; whoever closes it may have reasons, too
  transition(b, 'CLOSED', cause)
  b.failures, b.open_until, b.quiet_since = 0, 0, math.floor(now)
  b.ramp, b.ramp_ok = 1, 0
  if ramp_end() <= 1 then
    b.ramp = 0
  end
end

-- probe_failed sets when the next probe may start after one that told nothing
-- about the limit; not before earliest.
local function probe_failed(b, earliest)
  local wait = math.min(PROBE_BACKOFF * 2 ^ math.min(b.probe_retries, 40), cooldown(b))
  local after = math.max(earliest, math.ceil(b.probe_started + wait))
  clear_probe(b)
  b.probe_after = after
  b.probe_retries = b.probe_retries + 1
  b.dirty = true
end

-- prepare makes Redis take what the script writes even when it is full: it
-- refuses a script's first write then, unless that frees memory, and lets it
-- finish otherwise. This one does neither.
local function prepare()
  redis.call('ZREM', REPORTS, '')
end

-- first_time says whether this report has not been counted yet: clients resend
-- a command whose reply was lost.
local function first_time(id)
  prepare()
  if redis.call('ZADD', REPORTS, 'NX', int(math.floor(now)), id) == 0 then
    return false
  end
  redis.call('ZREMRANGEBYSCORE', REPORTS, '-inf', '(' .. int(math.floor(now - REPORTS_KEPT)))
  redis.call('PEXPIRE', REPORTS, int(REPORTS_KEPT))
  return true
end

local function quote(text)
  return cjson.encode(text)
end

local function record(b)
  local out = { '"name":' .. quote(b.name) }
  for _, field in ipairs(TEXTS) do
    if field ~= 'probe_token' and b[field] ~= '' then
      out[#out + 1] = '"' .. field .. '":' .. quote(b[field])
    end
  end
  for _, field in ipairs(NUMBERS) do
    if b[field] ~= 0 then
      out[#out + 1] = '"' .. field .. '":' .. int(b[field])
    end
  end
  return '{' .. table.concat(out, ',') .. '}'
end

local function event(b)
  local manual = b.event.cause == 'manual' or b.event.cause == 'forced'
  return '{"at":' .. int(math.floor(now)) ..
      ',"name":' .. quote(b.name) ..
      ',"key":' .. quote(b.key or '') ..
      ',"from":"' .. b.event.from .. '","to":"' .. b.state .. '"' ..
      ',"cause":' .. quote(b.event.cause) ..
      ',"incident":' .. quote(b.incident) ..
      ',"by":' .. quote(WHO) ..
      ',"reason":' .. quote(manual and b.reason or '') ..
      ',"generation":' .. int(b.generation) ..
      ',"previous":' .. int(transitioned) ..
      ',"failures":' .. int(b.failures) ..
      ',"opened_at":' .. int(b.opened_at) ..
      ',"open_until":' .. int(b.open_until) ..
      ',"probes":' .. int(b.probes) ..
      ',"wasted":' .. int(b.wasted) ..
      ',"rescheduled":' .. int(b.rescheduled) .. '}'
end

-- incident is the whole of it, from the opening to now.
local function incident(b, ended, by)
  local reason, operator = unpack(b.opened)
  return '{"id":' .. quote(b.incident) ..
      ',"name":' .. quote(b.name) ..
      ',"started":' .. int(b.opened_at) .. ',"ended":' .. int(ended) ..
      ',"cause":' .. quote(b.incident_cause) .. ',"ended_by":' .. quote(by) ..
      ',"reason":' .. quote(reason) .. ',"by":' .. quote(operator) ..
      ',"probes":' .. int(b.probes) .. ',"wasted":' .. int(b.wasted) ..
      ',"rescheduled":' .. int(b.rescheduled) ..
      ',"instances":' .. quote(b.instances) .. '}'
end

-- push puts an entry in front of a list of the breaker's that is kept short.
local function push(b, list, entry, limit)
  redis.call('LPUSH', list, entry)
  redis.call('LTRIM', list, '0', int((b.key and KEY_LIMIT or limit) - 1))
  if b.key then
    redis.call('PEXPIRE', list, int(KEY_KEPT))
  end
end

-- forget_idle forgets up to n of the keys that nobody has asked for in a long time.
local function forget_idle(n)
  local idle = redis.call('ZRANGEBYSCORE', IDLE, '-inf', int(math.floor(now - IDLE_AFTER)), 'LIMIT', '0', int(n))
  for _, name in ipairs(idle) do
    local floor = redis.call('HGET', NOTCLOSED, FLOOR)
    local revision = number(redis.call('ZSCORE', CHANGES, name))
    if revision > number(floor) then
      redis.call('HSET', NOTCLOSED, FLOOR, int(revision))
    end
    redis.call('ZREM', CHANGES, name)
    redis.call('HDEL', NOTCLOSED, name)
    redis.call('ZREM', IDLE, name)
  end
end

-- keep sets how long the keys of a key's breaker live: no longer than it is
-- remembered once it waits for nothing but the next call. One that an operator
-- holds until it is reset stays.
local function keep(b)
  if not b.key then
    return
  end
  local waits = math.max(b.open_until, b.probe_until, b.probe_after, b.forced_until, b.budget_reset)
  if until_reset(b) or b.forced ~= '' and b.forced_until == 0 then
    redis.call('PERSIST', b.hash_key)
    redis.call('ZREM', IDLE, b.name)
  else
    local idle = math.floor(math.max(now, waits))
    redis.call('PEXPIRE', b.hash_key, int(math.ceil(idle - now + IDLE_AFTER)))
    redis.call('ZADD', IDLE, int(idle), b.name)
  end
  forget_idle(3)
end

-- origin returns the id of this data, and makes one where there is none or it was
-- lost. No two scripts of a server begin in the same microsecond.
local function origin()
  local id = redis.call('HGET', NOTCLOSED, ORIGIN)
  if not id then
    id = int(now_us) .. '-' .. INSTANCE
    redis.call('HSET', NOTCLOSED, ORIGIN, id)
  end
  return id
end

-- write stores and publishes the breaker as one revision, and a transition as
-- a generation. Neither is ever below TIME, so that what was issued before the
-- keys were lost stays older than what comes after.
local function write(b)
  prepare()
  b.revision = math.max(version + 1, now_us)
  version = b.revision
  b.updated_at = math.floor(now)
  local happened, before = 'null', transitioned
  if b.event then
    b.generation = b.revision
    if b.state == 'OPEN' and b.incident == '' then
      b.incident = b.name .. '-' .. int(b.generation)
    end
    happened = event(b)
    transitioned = b.generation
    push(b, b.history_key, happened, EVENTS_LIMIT)
    redis.call('LPUSH', EVENTS, happened)
    redis.call('LTRIM', EVENTS, '0', int(EVENTS_LIMIT - 1))
    if b.state == 'CLOSED' then
      if b.incident ~= '' then
        push(b, b.incidents_key, incident(b, math.floor(now), b.event.cause), INCIDENTS_LIMIT)
      end
      b.incident, b.incident_cause, b.cause, b.instances = '', '', '', ''
      b.opened_at, b.probes, b.wasted, b.rescheduled = 0, 0, 0, 0
      if b.forced == '' then
        b.reason, b.tripped_by = '', ''
      end
    end
  end
  local fields = {}
  for _, field in ipairs(TEXTS) do
    fields[#fields + 1] = field
    fields[#fields + 1] = b[field]
  end
  for _, field in ipairs(NUMBERS) do
    fields[#fields + 1] = field
    fields[#fields + 1] = int(b[field])
  end
  redis.call('HSET', b.hash_key, unpack(fields))
  local entry = record(b)
  redis.call('HSET', NOTCLOSED, VERSION, int(version), TRANSITION, int(transitioned))
  if plain(b) then
    redis.call('HDEL', NOTCLOSED, b.name)
  else
    redis.call('HSET', NOTCLOSED, b.name, entry)
  end
  redis.call('ZADD', CHANGES, int(b.revision), b.name)
  keep(b)
  redis.call('PUBLISH', CHANNEL, '{"origin":' .. quote(origin()) .. ',"now":' .. int(now_us) .. ',"version":' .. int(version) ..
    ',"before":' .. int(before) .. ',"transition":' .. int(transitioned) ..
    ',"record":' .. entry .. ',"event":' .. happened .. '}')
  b.dirty, b.event = false, nil
end

-- finish writes what the script changed, if anything, and answers. The name and
-- what is added tell of a refusal.
local function finish(result, parent, child, name, more)
  for _, b in ipairs({ parent, child }) do
    if b.dirty or b.event then
      write(b)
    end
  end
  return { result, int(now_us), int(version), name or '', more or '', record(parent), child and record(child) or '' }
end
