-- record: a breaker in Redis. read_breakers returns what is stored, finish writes what the
-- script has changed. No file has rules: those are in breaker/internal/policy.

local EVENTS_LIMIT = 1000     -- transitions kept
local INCIDENTS_LIMIT = 200   -- incidents kept
local KEY_LIMIT = 20          -- of either, for a key
local KEY_KEPT = 604800000    -- ms that a key's history is kept: 7 days
local IDLE_AFTER = 3600000    -- ms after which a key without calls is forgotten
local REPORTS_KEPT = 60000    -- ms; longer than any client resends a command

-- A breaker's hash has the field record, which the rules write: a policy.State as JSON. The field record_sha1 is its checksum: it
-- shows whether a person has changed the record. The scripts read these fields of the record:
local RULE_TEXTS = { 'state', 'cause', 'forced', 'watch' }
local RULE_NUMBERS = { 'open_until', 'forced_until', 'metered', 'budget_reset', 'budget_limit', 'streak', 'pace', 'pace_from', 'confirming',
  'learned_since', 'learned_gap', 'learned_length', 'learned_quota', 'learned_asks', 'learned_cap', 'learned_careful', 'learned_enough',
  'learned_calm', 'refused_at', 'all_at', 'all_over' }
-- Beside it are fields that the scripts change by themselves, a policy.Meter: step counts swaps and leases, and write, which is
-- not of it, is the id of the last swap. For people the hash also has state, cause and open_until.
local METER_TEXTS = { 'incident', 'instances', 'probe_token', 'probe_by', 'windows' }
local METER_NUMBERS = { 'failures', 'last_failure', 'wasted', 'rescheduled', 'probe_started', 'probe_until', 'probe_after', 'probe_retries', 'ramp', 'ramp_ok',
  'budget_left', 'pace_gap', 'round_started', 'round_anchor', 'round_used', 'round_hold', 'round_total', 'round_paced', 'round_calm', 'updated_at',
  'generation', 'revision', 'step' }
local OF_THE_SWAP = { generation = true, revision = true, step = true, incident = true } -- which the rules leave to it
local COUNTED = { 'round_started', 'round_anchor', 'round_used', 'round_total', 'round_paced', 'round_calm', 'round_hold', 'ramp_ok' } -- by each call

-- plain says that any call may start: instances need not know of the breaker.
local function plain(b)
  return b.state == 'CLOSED' and b.failures == 0 and b.streak == 0 and b.ramp == 0 and b.metered == 0 and
    b.learned_cap == 0 and b.learned_since == 0 and b.forced == ''
end

-- until_reset says that an operator opened it without an end.
local function until_reset(b)
  return b.state == 'OPEN' and b.open_until == 0 and b.cause == 'manual'
end

-- took_part adds the calling instance to the incident, which names 50.
local function took_part(b)
  local _, commas = string.gsub(b.instances, ',', ',')
  if b.state ~= 'CLOSED' and INSTANCE ~= '' and commas < 49 and not string.find(',' .. b.instances .. ',', ',' .. CALLER .. ',', 1, true) then
    b.instances = b.instances == '' and CALLER or b.instances .. ',' .. CALLER
  end
end

-- use reads a record into b, and returns whether the record is a JSON object. intact says that its checksum is right. If it is not,
-- a person has changed the record: use keeps its texts and whole numbers, so that Go reads the same as the scripts.
local function use(b, text, intact)
  local valid, fields = pcall(cjson.decode, text or '')
  valid = valid and type(fields) == 'table' and string.sub(text, 1, 1) == '{'
  if not valid then
    text, fields = '{}', {}
  elseif not intact then
    local kept = {}
    for field, value in pairs(fields) do
      value = type(value) == 'number' and math.floor(number(value)) or value
      if (type(value) == 'number' or type(value) == 'string') and string.find(field, '^[%l_]+$') and field ~= 'name' and field ~= 'lost' then
        kept[#kept + 1], kept[#kept + 2] = field, value
      end
    end
    text = json(kept)
    fields = cjson.decode(text)
  end
  b.rules = text
  for _, field in ipairs(RULE_TEXTS) do
    b[field] = type(fields[field]) == 'string' and fields[field] or ''
  end
  for _, field in ipairs(RULE_NUMBERS) do
    b[field] = type(fields[field]) == 'number' and number(fields[field]) or 0
  end
  return valid
end

-- read returns one breaker as a table. b.due says that time, or a loss, has changed it: the rules must be asked.
local function read(name, places, listed)
  local stored = {}
  local flat = redis.call('HGETALL', KEYS[places.hash])
  for i = 1, #flat, 2 do
    stored[flat[i]] = flat[i + 1]
  end
  local b = { name = name, stored = stored, write = stored.write or '' }
  for place, i in pairs(places) do
    b[place .. '_key'] = KEYS[i]
  end
  local meter, intact = stored, stored.record_sha1 == redis.sha1hex(stored.record or '')
  if not use(b, stored.record, intact) then
    meter = { generation = stored.generation, revision = stored.revision, step = stored.step } -- lost: its incident is, too
  end
  for _, field in ipairs(METER_TEXTS) do
    b[field] = meter[field] or ''
  end
  for _, field in ipairs(METER_NUMBERS) do
    b[field] = number(meter[field])
  end
  if b.state ~= 'OPEN' and b.state ~= 'HALF_OPEN' then
    b.state = 'CLOSED' -- also a lost hash
  end
  version = math.max(version, b.revision, b.generation)
  if plain(b) == (listed and true or false) or stored.record and not intact then
    b.lost = listed or '{}' -- one of both was lost or changed, and instances mirror a wrong state
  end
  b.due = b.lost or b.updated_at > now and not plain(b) or math.max(b.round_started, b.round_anchor, b.refused_at) > now_us or
    b.forced ~= '' and b.forced_until > 0 and now >= b.forced_until
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

-- record is the breaker as JSON: what the rules have written, and the meter. What was listed is a text in it: it may be damaged.
local function record(b)
  local meter = {}
  for _, list in ipairs({ METER_TEXTS, METER_NUMBERS }) do
    for _, field in ipairs(list) do
      meter[#meter + 1], meter[#meter + 2] = field, b[field]
    end
  end
  return '{"name":' .. cjson.encode(b.name) .. ',"meter":' .. json(meter) .. (b.lost and ',"lost":' .. cjson.encode(b.lost) or '') .. (b.rules == '{}' and '}' or ',' .. string.sub(b.rules, 2))
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
    (b.round_started + b.learned_length) / 1000, b.probe_token ~= '' and now + KEY_KEPT or 0) -- a probe outlives a clock that is set forward
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

-- store stores fields, and each field of the lists that is not '' or 0.
local function store(b, fields, ...)
  local none = {}
  for _, list in ipairs({ ... }) do
    for _, field in ipairs(list) do
      local value = b[field]
      if value ~= '' and value ~= 0 then
        fields[#fields + 1], fields[#fields + 2] = field, type(value) == 'number' and int(value) or value
        b.stored[field] = true
      elseif b.stored[field] then
        none[#none + 1] = field
        b.stored[field] = nil
      end
    end
  end
  if #fields > 0 then
    redis.call('HSET', b.hash_key, unpack(fields))
  end
  if #none > 0 then
    redis.call('HDEL', b.hash_key, unpack(none))
  end
end

-- write stores and publishes the breaker as one revision, and a transition, an entry of the history in JSON, as
-- a generation. Neither is ever below TIME, so that what was issued before the keys were lost stays older than what
-- comes after. ended is the incident that is over. A note is an entry of the history alone.
local function write(b, event, ended, note)
  prepare()
  local function entry(fields, text)
    return string.sub(json(fields), 1, -2) .. ',' .. string.sub(text, 2)
  end
  local function happened_as(generation)
    return entry({ 'at', math.floor(now), 'name', b.name, 'key', b.key or '', 'incident', b.incident, 'by', CALLER,
      'generation', generation, 'previous', transitioned }, event)
  end
  if note then
    push(b, b.history_key, happened_as(b.generation), EVENTS_LIMIT)
    return
  end
  b.revision = math.max(version + 1, now_us)
  version = b.revision
  if now > b.updated_at then
    b.updated_at = math.floor(now) -- else the rules repair instants first
  end
  local happened, before = 'null', transitioned
  if event then
    b.generation = b.revision
    if b.state == 'OPEN' and b.incident == '' then
      b.incident = b.name .. '-' .. int(b.generation)
    end
    happened = happened_as(b.generation)
    transitioned = b.generation
    push(b, b.history_key, happened, EVENTS_LIMIT)
    redis.call('LPUSH', EVENTS, happened)
    redis.call('LTRIM', EVENTS, '0', int(EVENTS_LIMIT - 1))
    if ended then
      if b.incident ~= '' then
        push(b, b.incidents_key, entry({ 'id', b.incident, 'name', b.name, 'ended', math.floor(now) }, ended), INCIDENTS_LIMIT)
      end
      b.incident = ''
    end
  end
  store(b, { 'record', b.rules, 'record_sha1', redis.sha1hex(b.rules), 'state', b.state, 'cause', b.cause, 'open_until', int(b.open_until), 'write', b.write }, METER_TEXTS, METER_NUMBERS)
  b.lost = nil
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
    ',"event":' .. happened .. '}\n' .. entry)
  if event then
    redis.pcall('PUBLISH', string.match(CHANNEL, '^[^:]*') .. ':events', DESTINATION)
  end
  b.dirty = false
end

-- write_counts stores what each call changes and no instance needs to know.
local function write_counts(b)
  prepare()
  store(b, {}, COUNTED)
end

-- reply is what a script returns.
local function reply(result, parent, child, name, more)
  return table.concat({ result, int(now_us), int(version), name or '', more or '', parent.written or record(parent),
    child and (child.written or record(child)) or '' }, '\n')
end

-- finish writes the changes of the script, if any, and returns the reply. name and more
-- describe a refusal.
local function finish(result, parent, child, name, more)
  for _, b in ipairs({ parent, child }) do
    if result == 'denied' and b.before then -- no call begins, and no round
      b.round_started, b.round_anchor, b.round_used, b.round_hold, b.counted = unpack(b.before)
    end
    if b.dirty or b.counted and now - b.updated_at > 300000 then
      write(b)
    elseif b.counted then
      write_counts(b)
    end
  end
  return reply(result, parent, child, name, more)
end
