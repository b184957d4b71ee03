-- transitions: the rules of a breaker. A function changes one breaker, the table b of
-- record.lua, and writes nothing: finish does, if b.dirty or b.event say so.
--
--   reported  CLOSED                          by the probe                   late, or not CLOSED
--   limited   counts; opens at the threshold, opens again, for longer, also  is wasted; its hint
--             at a hint, and in slow start,     than a hint that was wrong   extends OPEN
--             unless it tested a shorter pace
--   success   resets the count                closes; slow start begins      nothing
--   failure   nothing                         next probe in 1, 2, 4 … s      nothing
--   neutral   nothing                         next probe at once             nothing
--   unautho-  opens at once, with cause       opens again                    is wasted
--   rized     credentials
--   outage    counts for an outage, and       opens again, if it opened      is wasted
--             opens at its threshold          because of one
--
-- An outage is a part of other outcomes: a failure that is known to be 5xx or no answer, and a
-- success that is 401 or 403. Any other answer resets its count.
--
-- OPEN becomes HALF_OPEN by the first caller that asks after its time. A probe whose lease
-- has ended counts as a failure. An operator trips, resets and forces in any state.

local PROBE_BACKOFF = 1000 -- ms before the probe after a failed one, and of an outage; doubles each time
local RAMP_UNKNOWN = 64    -- calls in flight that end a slow start if no capacity is known
local RAMP_LIMIT = 1024    -- and the most that it goes up to

-- plain says that any call may start: instances need not know of the breaker.
local function plain(b)
  return b.state == 'CLOSED' and b.failures == 0 and b.streak == 0 and b.ramp == 0 and b.metered == 0 and
    b.learned_cap == 0 and b.learned_since == 0 and b.forced == ''
end

-- until_reset says that an operator opened it without an end.
local function until_reset(b)
  return b.state == 'OPEN' and b.open_until == 0 and b.cause == 'manual'
end

-- cooled says that an OPEN breaker's time has come.
local function cooled(b)
  return b.state == 'OPEN' and now >= b.open_until and not until_reset(b)
end

local function clear_budget(b)
  b.metered, b.budget_left, b.budget_reset, b.windows = 0, 0, 0, ''
end

local function clear_streak(b)
  b.streak, b.streak_id, b.streak_limit, b.streak_of, b.streak_jobs = 0, 0, 0, '', ''
end

local function clear_probe(b)
  b.probe_token, b.probe_by = '', ''
  b.probe_started, b.probe_until, b.probe_after = 0, 0, 0
  b.dirty = true
end

local function transition(b, to, cause)
  b.event = { from = b.state, cause = cause }
  b.state = to
  b.probe_retries = 0
  clear_probe(b)
end

-- open opens for length ms; nil is until a reset.
local function open(b, cause, length)
  local unrefused = cause == 'manual' or cause == 'budget' or cause == 'learned' and b.failures == 0 -- no answer led to it
  if b.state == 'CLOSED' then -- an incident begins
    begin_incident(b, unrefused and 0 or cause == 'outage' and b.streak or math.max(1, b.failures))
    b.outage = ''
    clear_streak(b)
  end
  local other = { manual = true, credentials = true } -- than a limit
  if b.state == 'CLOSED' or other[cause] or other[b.cause] then
    b.incident_cause = cause -- a failed probe does not change why it began
  end
  transition(b, 'OPEN', cause)
  b.cause, b.reason, b.tripped_by, b.forced, b.forced_until = cause, '', '', '', 0
  b.ramp, b.ramp_ok, b.missing = 0, 0, 0
  b.confirming = 0
  clear_budget(b)
  if length and cause ~= 'manual' then
    b.last_cooldown = math.ceil(length)
  end
  b.open_until = length and math.ceil(now + length) or 0
  took_part(b)
end

-- open_by_answer opens for as long as the API's hint says, or for the cooldown. An API that is down is
-- tested early: after 1 s, then 2, 4 … up to the cooldown, but not if its slow start has failed.
local function open_by_answer(b, cause, hint, down)
  local slow, again = b.ramp > 0, b.state == 'HALF_OPEN'
  if slow or again then
    raise_level(b) -- it tried too soon
  end
  local length = cooldown(b)
  if down and not slow then
    length = math.min(length, again and math.max(PROBE_BACKOFF, 2 * b.last_cooldown) or PROBE_BACKOFF)
  end
  if hint > 0 then
    open(b, 'hint', hinted(hint))
  else
    open(b, cause, length)
  end
end

-- open_by_refused_credentials opens for the cooldown: the API does not say when they are renewed.
local function open_by_refused_credentials(b, answer)
  local began = b.state == 'CLOSED'
  local missing = answer.retry > 0
  if missing then
    open(b, 'credentials', hinted(answer.retry))
  else
    open_by_answer(b, 'credentials', 0)
  end
  if began and answer.uncalled then
    b.wasted = 0
  end
  -- It stays for the incident: the alerts of its end follow those of its beginning.
  b.reason, b.permanent = answer.reason, math.max(b.permanent, answer.permanent)
  b.credentials, b.missing = answer.credentials, missing and 1 or 0
end

-- slow_start_end is the number of calls in flight from which on a slow start limits nothing.
local function slow_start_end()
  return math.min(capacity > 0 and capacity or RAMP_UNKNOWN, RAMP_LIMIT)
end

local function half_open(b)
  b.probe_due = b.open_until
  transition(b, 'HALF_OPEN', 'cooldown')
  b.open_until = 0
end

local function start_probe(b, token, lease)
  b.probe_token, b.probe_by = token, CALLER
  b.probe_started, b.probe_until, b.probe_after = math.floor(now), math.ceil(now + lease), 0
  b.dirty = true
  took_part(b)
end

-- close closes, and begins a slow start with 1 call in flight.
local function close(b, cause)
  b.pace_from, b.pace_gap = b.probe_started > 0 and b.probe_started or math.floor(now), 0
  b.opened = { b.reason, b.tripped_by } -- of the incident; the operator that closes it may give others
  transition(b, 'CLOSED', cause)
  b.failures, b.open_until, b.quiet_since, b.confirming = 0, 0, math.floor(now), 0
  b.pace_tested = math.min(b.pace_tested, 1)
  b.ramp, b.ramp_ok = (slow_start_end() > 1 or b.spaced >= PACE.AFTER) and 1 or 0, 0
  clear_streak(b)
end

-- grow counts a success of the slow start; a round of them doubles the calls in flight.
local function grow(b)
  if pace.on(b) and pace.accepted(b) then
    return
  end
  b.ramp_ok = b.ramp_ok + 1
  if b.ramp_ok >= b.ramp then
    pace.clear(b)
    b.ramp, b.ramp_ok = 2 * b.ramp, 0
    if b.ramp >= slow_start_end() then
      b.ramp = 0
    end
  end
end

-- retry_probe sets when the next probe may start after a failed one; not before earliest.
local function retry_probe(b, earliest)
  local wait = math.min(PROBE_BACKOFF * 2 ^ math.min(b.probe_retries, 40), cooldown(b))
  local after = math.max(earliest, math.ceil(b.probe_started + wait))
  clear_probe(b)
  b.probe_after, b.probe_retries, b.probe_due = after, b.probe_retries + 1, after
end

-- RULES by where a report meets the breaker, and by its outcome. answer has hint (ms, 0 is
-- none), threshold (0: no answer of the instance opens), reason, permanent, credentials,
-- retry and uncalled of refused credentials, outage, outage_threshold, job and busy (503) of a
-- call that counts for an outage, and first_time(), false if the report was counted before. A rule
-- returns the script's result, nil for "applied".
local RULES = { CLOSED = {}, PROBE = {}, LATE = {} }

function RULES.CLOSED.limited(b, answer)
  if answer.threshold == 0 then
    return
  end
  if not answer.first_time() then
    return 'duplicate'
  end
  b.failures, b.last_failure, b.dirty = b.failures + 1, math.floor(now), true
  if b.ramp > 0 or answer.hint > 0 or b.failures >= answer.threshold then
    if pace.refused(b, slow_start_end() <= 1) and answer.hint == 0 then
      return
    end
    open_by_answer(b, b.ramp > 0 and 'ramp' or 'threshold', answer.hint)
  end
end

function RULES.CLOSED.success(b, answer)
  if b.failures > 0 then
    if not answer.first_time() then
      return 'duplicate'
    end
    b.failures, b.dirty = 0, true
  end
end

function RULES.CLOSED.unauthorized(b, answer)
  if answer.threshold == 0 then
    return
  end
  if not answer.first_time() then
    return 'duplicate'
  end
  open_by_refused_credentials(b, answer)
end

-- refused_probe counts a probe that was refused, and lets open open the breaker again.
local function refused_probe(b, answer, open)
  answer.first_time() -- sent again, it would be a late answer of the next opening
  b.wasted = b.wasted + 1
  if answer.threshold > 0 then
    b.probes = b.probes + 1
    open()
  elseif b.cause == 'manual' then
    close(b, 'success') -- the operator's time is over
  else
    retry_probe(b, 0) -- answers to other instances opened it, and decide
  end
end

-- A hint counts for at least a second then, and for twice the last one, which was wrong.
function RULES.PROBE.limited(b, answer)
  refused_probe(b, answer, function()
    local hint, least = answer.hint, b.cause == 'hint' and 2 * b.last_cooldown or 0
    b.last_failure = math.floor(now)
    open_by_answer(b, 'probe', hint > 0 and math.max(hint, least, 1000) or 0)
  end)
end

function RULES.PROBE.unauthorized(b, answer)
  refused_probe(b, answer, function()
    b.wasted = b.wasted - (answer.uncalled and 1 or 0)
    open_by_refused_credentials(b, answer)
  end)
end

function RULES.PROBE.success(b) close(b, 'success') end

function RULES.PROBE.failure(b) retry_probe(b, 0) end

RULES.PROBE.neutral = clear_probe

function RULES.PROBE.outage(b, answer)
  refused_probe(b, answer, function() open_by_answer(b, 'outage', 0, answer.outage == 'down' and not answer.busy) end)
end

function RULES.LATE.limited(b, answer)
  if not answer.first_time() then
    return 'duplicate'
  end
  took_part(b)
  b.wasted, b.dirty = b.wasted + 1, true
  if b.state == 'OPEN' and answer.hint > 0 and not until_reset(b) then
    b.open_until = math.max(b.open_until, math.ceil(now + hinted(answer.hint)))
  end
end

function RULES.LATE.unauthorized(b, answer)
  if not answer.uncalled then
    return RULES.LATE.limited(b, answer) -- they have no hint
  end
end

RULES.LATE.outage = RULES.LATE.limited
