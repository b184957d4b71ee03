-- record: a breaker in Redis. read_breakers returns what is stored, finish writes what the
-- script has changed.

local EVENTS_LIMIT = 1000     -- transitions kept
local INCIDENTS_LIMIT = 200   -- incidents kept
local KEY_LIMIT = 20          -- of either, for a key
local KEY_KEPT = 604800000    -- ms that a key's history is kept: 7 days
local IDLE_AFTER = 3600000    -- ms after which a key without calls is forgotten
local REPORTS_KEPT = 60000    -- ms; longer than any client resends a command

-- The fields of the hash and of the record, in the order a person reads them.
-- Instants are unix ms on Redis's clock, 0 is "none"; metered is since when calls
-- are counted because the budget is low; quiet_since since when the level of a CLOSED
-- breaker has not fallen; permanent is 1 if credentials were refused that only a person can renew,
-- credentials identifies those that were refused last, missing is 1 if none could be obtained;
-- streak_… are the calls in a row that count for an outage, of which streak_limit open, or the keys
-- in a row that were refused (of 429); outage is
-- what the last one consisted of, outage_id the generation of its opening and outage_jobs those
-- whose calls reopened in slow start; spaced and pace_… are of a limiter that spaces calls, see pace.lua;
-- learned_cap is how many calls may be in flight; guess_after is of keys.lua, hinted_at when the first hint opened that teaches nothing.
local TEXTS = { 'state', 'cause', 'incident', 'incident_cause', 'reason', 'tripped_by', 'forced', 'instances', 'probe_by', 'probe_token',
  'streak_of', 'streak_jobs', 'outage', 'outage_jobs', 'credentials', 'windows', 'learner' }
local NUMBERS = { 'failures', 'last_failure', 'generation', 'revision', 'open_until', 'opened_at', 'quiet_since', 'probes',
  'wasted', 'rescheduled', 'level', 'last_cooldown', 'ramp', 'ramp_ok', 'forced_until', 'metered', 'budget_left',
  'budget_reset', 'budget_limit', 'learned_cap', 'probe_started', 'probe_until', 'probe_after', 'probe_retries', 'permanent', 'missing', 'streak', 'streak_id',
  'streak_limit', 'outage_id', 'spaced', 'pace_from', 'pace_gap', 'pace_accepted', 'pace_refused', 'pace_tested', 'guess_after', 'hinted_at', 'updated_at' }
-- Of a learned limit, see learn.lua: instances need the first ones. Only stored once there is one.
local LEARNED, LEARNED_SHARED = { 'learned_since', 'learned_step', 'round_started', 'round_anchor', 'round_used', 'round_total', 'round_paced',
  'round_calm', 'refused_at', 'confirming', 'learned_gap', 'learned_length', 'learned_careful', 'learned_enough', 'learned_calm', 'probe_due',
  'round_doubted', 'guess_since' }, 10
local COUNTED = { 'round_started', 'round_anchor', 'round_used', 'round_total', 'round_paced', 'round_calm' } -- by each call


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
  for _, list in ipairs({ NUMBERS, LEARNED }) do
    for _, field in ipairs(list) do
      b[field] = number(stored[field])
    end
  end
  if b.state ~= 'OPEN' and b.state ~= 'HALF_OPEN' then
    b.state = 'CLOSED' -- also a lost hash
  end
  version = math.max(version, b.revision, b.generation)
  repair_instants(b)
  fall_back(b)
  if b.forced ~= '' and b.forced_until > 0 and now >= b.forced_until then
    b.forced, b.forced_until, b.reason, b.tripped_by, b.dirty = '', 0, '', '', true
  end
  if plain(b) == (listed and true or false) then
    b.dirty = true -- one of both was lost, and instances mirror a wrong state
    local was = listed and cjson.decode(listed)
    if was and (was.state == 'OPEN' or was.state == 'HALF_OPEN') then
      -- Its incident is over: publish that.
      b.incident, b.instances, b.incident_cause = was.incident or '', was.instances or '', was.incident_cause or ''
      for _, field in ipairs({ 'opened_at', 'probes', 'wasted', 'rescheduled', 'permanent' }) do
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
  local listed = redis.call('HMGET', NOTCLOSED, VERSION, TRANSITION, CAPACITY, CAPS, DESTINATION, DESTINATION .. '/' .. KEY)
  version, transitioned, capacity = number(listed[1]), number(listed[2]), number(listed[3])
  caps = listed[4] or ''
  local parent = read(DESTINATION, PLACES, listed[5])
  if KEY == '' then
    return parent, nil
  end
  local child = read(DESTINATION .. '/' .. KEY, KEY_PLACES, listed[6])
  child.key = KEY
  return parent, child
end

-- prepare makes a full Redis accept the script's writes: its first one removes nothing and
-- is accepted, and then Redis lets the script finish.
local function prepare()
  redis.call('ZREM', REPORTS, '')
end

-- clear_learned forgets what is learned.
local function clear_learned(b)
  if b.confirming > 0 then
    b.ramp = 0
  end
  for _, field in ipairs(LEARNED) do
    b[field] = 0
  end
  b.learned_cap, b.guess_after, b.hinted_at, b.learner = 0, 0, 0, ''
  prepare()
  redis.call('HDEL', b.hash_key, unpack(LEARNED))
  b.dirty = true
end

-- first_time reports whether this report has not been counted yet: clients resend a command
-- whose reply was lost.
local function first_time(id)
  prepare()
  if redis.call('ZADD', REPORTS, 'NX', int(math.floor(now)), id) == 0 then
    return false
  end
  local old = redis.call('ZRANGEBYSCORE', REPORTS, '-inf', '(' .. int(math.floor(now - REPORTS_KEPT)), 'LIMIT', '0', '100')
  if #old > 0 then
    redis.call('ZREM', REPORTS, unpack(old))
  end
  redis.call('PEXPIRE', REPORTS, int(REPORTS_KEPT))
  return true
end

local function record(b)
  local out = { '"name":' .. cjson.encode(b.name) }
  for _, field in ipairs(TEXTS) do
    if b[field] ~= '' and field ~= 'probe_token' and field ~= 'streak_jobs' and field ~= 'outage_jobs' then
      out[#out + 1] = '"' .. field .. '":' .. cjson.encode(b[field])
    end
  end
  for _, field in ipairs(NUMBERS) do
    if b[field] ~= 0 then
      out[#out + 1] = '"' .. field .. '":' .. int(b[field])
    end
  end
  for i = 1, b.learned_since > 0 and LEARNED_SHARED or 0 do
    if b[LEARNED[i]] ~= 0 then
      out[#out + 1] = '"' .. LEARNED[i] .. '":' .. int(b[LEARNED[i]])
    end
  end
  return '{' .. table.concat(out, ',') .. '}'
end

local function event(b)
  local cause = b.event.cause
  local reason = (cause == 'manual' or cause == 'forced' or cause == 'credentials') and b.reason or ''
  return json({
    'at', math.floor(now), 'name', b.name, 'key', b.key or '', 'from', b.event.from, 'to', b.state,
    'cause', cause, 'incident', b.incident, 'by', CALLER, 'reason', reason,
    'generation', b.generation, 'previous', transitioned, 'failures', b.failures,
    'opened_at', b.opened_at, 'open_until', b.open_until, 'probes', b.probes, 'wasted', b.wasted,
    'rescheduled', b.rescheduled, 'permanent', b.permanent, 'incident_cause', b.incident_cause,
  })
end

-- push prepends an entry to a capped list of the breaker.
local function push(b, list, entry, limit)
  redis.call('LPUSH', list, entry)
  redis.call('LTRIM', list, '0', int((b.key and KEY_LIMIT or limit) - 1))
  if b.key then
    redis.call('PEXPIRE', list, int(KEY_KEPT))
  end
end

-- forget_idle deletes up to n of the keys without calls for IDLE_AFTER.
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

-- keep sets how long the Redis keys of a key's breaker live: no longer than it is remembered
-- once it waits only for the next call. One that an operator has tripped or forced until it
-- is reset stays.
local function keep(b)
  if not b.key then
    return
  end
  local waits = math.max(b.open_until, b.probe_until, b.probe_after, b.forced_until, b.budget_reset,
    (b.round_started + b.learned_length) / 1000)
  for reset in string.gmatch(b.windows, '%S+ %d+ (%d+) %d+') do
    waits = math.max(waits, number(reset))
  end
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

-- origin returns the id of this data, and makes one if there is none or it was lost. No two
-- scripts of a server begin in the same microsecond.
local function origin()
  local id = redis.call('HGET', NOTCLOSED, ORIGIN)
  if not id then
    id = int(now_us) .. '-' .. INSTANCE
    redis.call('HSET', NOTCLOSED, ORIGIN, id)
  end
  return id
end

local function write_stamp(id)
  redis.call('SET', STAMP, int(version) .. ' ' .. int(capacity) .. ' ' .. id)
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
      end_incident(b)
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
  for _, field in ipairs(b.learned_since > 0 and LEARNED or {}) do
    fields[#fields + 1] = field
    fields[#fields + 1] = int(b[field])
  end
  redis.call('HSET', b.hash_key, unpack(fields))
  local entry = record(b)
  b.written = entry
  if plain(b) then
    redis.call('HDEL', NOTCLOSED, b.name)
    redis.call('HSET', NOTCLOSED, VERSION, int(version), TRANSITION, int(transitioned))
  else
    redis.call('HSET', NOTCLOSED, VERSION, int(version), TRANSITION, int(transitioned), b.name, entry)
  end
  redis.call('ZADD', CHANGES, int(b.revision), b.name)
  keep(b)
  local id = origin()
  write_stamp(id)
  redis.call('PUBLISH', CHANNEL, '{"origin":' .. cjson.encode(id) .. ',"now":' .. int(now_us) .. ',"version":' .. int(version) ..
    ',"before":' .. int(before) .. ',"transition":' .. int(transitioned) ..
    ',"record":' .. entry .. ',"event":' .. happened .. '}')
  if b.event then
    redis.pcall('PUBLISH', string.match(CHANNEL, '^[^:]*') .. ':events', DESTINATION)
  end
  b.dirty, b.event = false, nil
end

-- write_counts stores what each call changes, of which no instance needs to know.
local function write_counts(b)
  prepare()
  local fields = {}
  for _, field in ipairs(COUNTED) do
    fields[#fields + 1], fields[#fields + 2] = field, int(b[field])
  end
  redis.call('HSET', b.hash_key, unpack(fields))
end

-- finish writes the changes of the script, if any, and returns the reply. name and more
-- describe a refusal.
local function finish(result, parent, child, name, more)
  for _, b in ipairs({ parent, child }) do
    if b.dirty or b.event or b.counted and now - b.updated_at > 300000 then
      write(b)
    elseif b.counted then
      write_counts(b)
    end
  end
  return table.concat({ result, int(now_us), int(version), name or '', more or '', parent.written or record(parent),
    child and (child.written or record(child)) or '' }, '\n')
end
