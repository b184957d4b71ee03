-- prelude: what the breaker's scripts share. It stands in front of every script
-- before its SHA is computed.
--
-- KEYS (all in the slot of {destination})
--   1  hash: the breaker, in fields that a person can read
--   2  hash: breakers that instances must know of (not CLOSED, or CLOSED with
--      failures), name -> record as JSON; field ":version" is the highest
--      revision any breaker of the destination ever had
--   3  list: transitions as JSON, newest first, capped
--   4  sorted set: ids of reports already counted, by time
-- ARGV
--   1  clock: "" means Redis TIME; tests pass an instant in microseconds
--   2  name of the breaker
--   3  channel that changes are published on
--   4  who asks (an instance or an operator), for the history
--   5  cooldown, ms
--   6  factor of the cooldown per failed probe
--   7  longest cooldown, ms
--   8… what the script itself takes
-- Returns (every script): {result, now in µs, version, record as JSON}

local BREAKER, NOTCLOSED, HISTORY, REPORTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local NAME, CHANNEL, WHO = ARGV[2], ARGV[3], ARGV[4]
local COOLDOWN, MULTIPLIER, MAX_COOLDOWN = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local VERSION = ':version'   -- a name cannot start with a colon
local HISTORY_LIMIT = 1000   -- transitions
local REPORTS_KEPT = 60000   -- ms; longer than any client resends a command
local PROBE_BACKOFF = 1000   -- ms before the probe after one that told nothing

-- The fields of the hash and of the record, in the order a person reads them.
-- Instants are unix ms on Redis's clock, 0 is "none".
local TEXTS = { 'state', 'cause', 'incident', 'reason', 'tripped_by', 'probe_by', 'probe_token' }
local NUMBERS = { 'failures', 'last_failure', 'generation', 'revision', 'open_until', 'opened_at', 'probes',
  'wasted', 'probe_started', 'probe_until', 'probe_after', 'probe_retries', 'updated_at' }

local now_us, now -- µs; ms with a fraction

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

local function read_clock()
  if ARGV[1] ~= '' then
    now_us = tonumber(ARGV[1])
  else
    local t = redis.call('TIME')
    now_us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  end
  now = now_us / 1000
end

-- read_breaker returns the breaker as a table. b.dirty says that it must be
-- written even if the script changes nothing.
local function read_breaker()
  read_clock()
  local stored = {}
  local flat = redis.call('HGETALL', BREAKER)
  for i = 1, #flat, 2 do
    stored[flat[i]] = flat[i + 1]
  end
  local b = {}
  for _, field in ipairs(TEXTS) do
    b[field] = stored[field] or ''
  end
  for _, field in ipairs(NUMBERS) do
    b[field] = number(stored[field])
  end
  if b.state ~= 'OPEN' and b.state ~= 'HALF_OPEN' then
    b.state = 'CLOSED' -- also a lost hash
  end
  local listed = redis.call('HMGET', NOTCLOSED, VERSION, NAME)
  b.version = math.max(number(listed[1]), b.revision, b.generation)
  if b.state == 'CLOSED' then
    -- The hash was lost and instances still mirror what it said.
    b.dirty = b.failures == 0 and listed[2] and true or false
  elseif b.updated_at > now then
    -- The clock went backwards: what was left to wait then is left to wait now.
    local back = b.updated_at - now
    for _, field in ipairs({ 'open_until', 'probe_started', 'probe_until', 'probe_after' }) do
      if b[field] > 0 then
        b[field] = math.max(1, math.ceil(b[field] - back))
      end
    end
    b.updated_at, b.dirty = math.floor(now), true
  end
  return b
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
  return math.max(1, math.min(COOLDOWN * MULTIPLIER ^ b.probes, MAX_COOLDOWN))
end

-- hinted is a hint within bounds, ms.
local function hinted(hint)
  return math.max(1, math.min(hint, MAX_COOLDOWN))
end

local function clear_probe(b)
  b.probe_token, b.probe_by = '', ''
  b.probe_started, b.probe_until, b.probe_after = 0, 0, 0
end

local function transition(b, to, cause)
  b.event = { from = b.state, cause = cause }
  b.state = to
  b.probe_retries = 0
  clear_probe(b)
end

-- open opens the breaker for length ms; nil means until it is reset.
local function open(b, cause, length)
  if b.state == 'CLOSED' then
    b.incident, b.opened_at, b.probes = '', math.floor(now), 0
    b.wasted = cause == 'manual' and 0 or b.failures
  end
  transition(b, 'OPEN', cause)
  b.cause, b.reason, b.tripped_by = cause, '', ''
  b.open_until = length and math.ceil(now + length) or 0
end

local function half_open(b)
  transition(b, 'HALF_OPEN', 'cooldown')
  b.open_until = 0
end

local function close(b, cause)
  transition(b, 'CLOSED', cause)
  b.failures, b.open_until = 0, 0
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
  local out = { '"name":' .. quote(NAME) }
  for _, field in ipairs(TEXTS) do
    if field ~= 'probe_token' then
      out[#out + 1] = '"' .. field .. '":' .. quote(b[field])
    end
  end
  for _, field in ipairs(NUMBERS) do
    out[#out + 1] = '"' .. field .. '":' .. int(b[field])
  end
  return '{' .. table.concat(out, ',') .. '}'
end

local function event(b, previous)
  return '{"at":' .. int(math.floor(now)) ..
      ',"name":' .. quote(NAME) ..
      ',"from":"' .. b.event.from .. '","to":"' .. b.state .. '"' ..
      ',"cause":' .. quote(b.event.cause) ..
      ',"incident":' .. quote(b.incident) ..
      ',"by":' .. quote(WHO) ..
      ',"reason":' .. quote(b.reason) ..
      ',"generation":' .. int(b.generation) ..
      ',"previous":' .. int(previous) ..
      ',"failures":' .. int(b.failures) ..
      ',"opened_at":' .. int(b.opened_at) ..
      ',"open_until":' .. int(b.open_until) ..
      ',"probes":' .. int(b.probes) ..
      ',"wasted":' .. int(b.wasted) .. '}'
end

-- write stores and publishes the breaker as one revision, and a transition as
-- a generation. Neither is ever below TIME, so that what was issued before the
-- keys were lost stays older than what comes after.
local function write(b)
  prepare()
  b.revision = math.max(b.version + 1, now_us)
  b.version = b.revision
  b.updated_at = math.floor(now)
  local happened = 'null'
  if b.event then
    local previous = b.generation
    b.generation = b.revision
    if b.state == 'OPEN' and b.incident == '' then
      b.incident = NAME .. '-' .. int(b.generation)
    end
    happened = event(b, previous)
    redis.call('LPUSH', HISTORY, happened)
    redis.call('LTRIM', HISTORY, '0', int(HISTORY_LIMIT - 1))
    if b.state == 'CLOSED' then
      b.incident, b.cause, b.reason, b.tripped_by = '', '', '', ''
      b.opened_at, b.probes, b.wasted = 0, 0, 0
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
  redis.call('HSET', BREAKER, unpack(fields))
  local entry = record(b)
  if b.state == 'CLOSED' and b.failures == 0 then
    redis.call('HDEL', NOTCLOSED, NAME)
    redis.call('HSET', NOTCLOSED, VERSION, int(b.version))
  else
    redis.call('HSET', NOTCLOSED, VERSION, int(b.version), NAME, entry)
  end
  redis.call('PUBLISH', CHANNEL, '{"now":' .. int(now_us) .. ',"version":' .. int(b.version) ..
    ',"record":' .. entry .. ',"event":' .. happened .. '}')
end

local function reply(b, result)
  return { result, int(now_us), int(b.version), record(b) }
end

-- finish writes what the script changed, if anything, and answers.
local function finish(b, result)
  if b.dirty or b.event then
    write(b)
  end
  return reply(b, result)
end
