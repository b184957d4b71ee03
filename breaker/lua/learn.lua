-- learn: limits of which the API says nothing but 429. The rules are in Go (breaker/internal/learner): this file starts
-- and counts calls by the numbers of a Meter and a Gate, and tells the instance that reports a call what has
-- happened; that decides, and stores it by learned.lua. The names are those of the Go types; instants and lengths
-- are µs, but learned_since and probe_due ms.
--
--   learned_since    when the first refusals opened; 0: nothing is learned, nothing is counted
--   learner          State, as JSON, of which this file knows nothing; learned_step counts its changes
--   learned_gap, learned_length, learned_cap, learned_careful, learned_enough, learned_calm  Gate
--   round_started, round_anchor, round_used, round_total, round_paced, round_calm, refused_at  Meter
--   confirming       Meter.Confirm; the call that is to confirm a limit has probe_token
--   probe_due        when the last probe could start
--   round_doubted    1 if a hint opened that a call got which may be refused for its own sake: the round teaches nothing

local LEARN = given('learn') ~= ''
local OF_A_LIMIT = { threshold = true, hint = true, probe = true, ramp = true, learned = true } -- causes
local LATE = 2000 -- ms after which a probe is late: no caller asked for it
local REFUSED_PART = 1 / 32 -- of a first round that an API refuses at least if its limit, and not demand, made it so long
local FIRST_HINT = 90000000 -- ms, 25 hours: a hint that follows another within that time begins to teach
local NONE = 90000000000 -- µs, 25 hours: longest of the Go package
local FASTEST = 1000 -- µs: fastest of it
local learn = {}

-- learn.on says that limits of the breaker are learned. An announced budget is better.
function learn.on(b)
  return LEARN and b.learned_since > 0 and b.metered == 0
end

-- tell adds an event to what the script returns: kind, calls in flight beside it, refusals in a row, when it was sent.
local function tell(b, kind, others, refused, sent)
  b.told = kind .. ':' .. int(others) .. ':' .. int(refused) .. ':' .. int(sent or 0)
end

-- learn.told is what is told of both breakers.
function learn.told(parent, child)
  return (parent.told and 'learn:' .. parent.told .. ' ' or '') .. (child and child.told and 'key-learn:' .. child.told or '')
end

local function begin_round(b, at, used)
  b.round_started, b.round_anchor, b.round_used, b.counted = math.floor(at), math.floor(at), used, true
end

-- learn.begin begins to learn.
function learn.begin(b)
  b.learned_since, b.dirty = math.floor(now), true
  begin_round(b, now_us, 0)
end

-- learn.burst is how many calls a round has.
function learn.burst(b)
  return math.max(1, math.floor(b.learned_length / b.learned_gap + .5))
end

-- due is when the next call may start by the pace, µs. A round that was not used up ends there; what it left may
-- be used at once.
local function due(b, others)
  local gap, length = b.learned_gap, b.learned_length
  local burst = learn.burst(b)
  if now_us >= b.round_started + length then
    local used = b.round_used + others
    local left = (now_us - b.round_anchor) / gap - used
    local ends = left >= math.max(2, burst / 4) -- else the pace was kept
    if b.round_anchor < b.round_started and now_us < b.round_started + 2 * length then
      left, ends = math.max(0, burst - used), true
    end
    if ends then
      begin_round(b, now_us, 0)
      b.round_anchor = math.floor(now_us - math.min(left, burst) * gap)
    end
  end
  return b.round_anchor + (b.round_used + others) * gap
end

-- learn.refusal is why no further call may start in a CLOSED breaker, and the ms after which to ask again at the
-- latest; nil if one may.
function learn.refusal(b)
  if not learn.on(b) or b.confirming > 0 then -- then the slow start lets one call through, alone
    return nil
  end
  if b.learned_careful > 0 and in_flight(b) >= math.max(1, math.floor(b.round_used / b.learned_careful)) then
    return 'learned', 1000
  end
  local wait = b.learned_gap > 0 and due(b, in_flight(b)) - now_us or 0
  if wait > 0 then
    return 'learned', math.ceil(math.min(wait / 1000, cooldown(b)))
  end
  return nil
end

-- learn.confirms makes the call the one that confirms the limit, if one is to.
function learn.confirms(b, token)
  if b.confirming > 0 then
    b.probe_token, b.dirty = token, true
  end
end

-- learn.ask_again lets one call in when no other is in flight: it confirms the limit.
function learn.ask_again(b, flying)
  b.confirming, b.ramp, b.ramp_ok, b.probe_token, b.dirty = math.max(1, flying), 1, 0, '', true
end

-- learn.forget tells that a call was refused for its own sake: its hints may have taught what is none.
function learn.forget(b)
  tell(b, 'own', in_flight(b), b.failures)
end

-- learn.wrong_guess: a limit that all keys meet (keys.lua) is none. That costs 32 times as long as it took, at most a
-- cooldown, and at least a minute. Three guesses may follow each other, the next ones wait until that time
-- has passed: wrong guesses take at most 3 % of the time.
function learn.wrong_guess(b)
  local began, after = b.guess_since, b.guess_after
  b.confirming, b.probe_token, b.guess_since = 0, '', 0
  b.ramp, b.ramp_ok, b.dirty = slow_start_end() > 1 and 1 or 0, 0, true
  if b.learned_since == began then
    clear_learned(b) -- the guess was all that there was
  end
  local cost = math.max(60000, 32 * math.min(now - began, cooldown(b)))
  b.guess_after = math.floor(math.max(after, now - 2 * cost) + cost)
end

-- learn.nothing says that there is no limit: none was met for longer than any window, or the API accepts any pace.
function learn.nothing(b)
  return b.learned_since > 0 and b.learned_cap == 0 and (b.learned_gap == 0 and now_us - b.round_started > NONE or b.learned_gap > 0 and b.learned_gap <= FASTEST)
end

-- learn.accepted counts an accepted call of a CLOSED breaker, sent at that instant. It returns false if a slow start
-- does not count it.
function learn.accepted(b, token, sent)
  local others = in_flight(b)
  if b.confirming > RAMP_LIMIT and b.probe_token == token then
    learn.wrong_guess(b)
  elseif b.confirming > 0 and b.probe_token == token then
    tell(b, 'confirmed', others, b.failures, sent)
    return false
  end
  if sent >= b.round_started then
    b.round_used, b.round_total = b.round_used + 1, b.round_total + 1
  end
  b.counted = true
  if b.confirming == 0 and learn.nothing(b) then
    clear_learned(b)
    return true
  elseif b.confirming > 0 then
    return false
  elseif b.learned_careful > 0 then
    if others + 1 >= math.max(1, math.floor((b.round_used - 1) / b.learned_careful)) and others < slow_start_end() then
      b.dirty = true -- another call may start
    end
    if b.failures > 0 and others == 0 then
      tell(b, 'unrefused', 0, b.failures)
    end
    return true
  end
  b.round_calm = b.round_calm + 1
  if b.learned_gap > 0 then
    local late = (now_us - due(b, others)) / b.learned_gap
    if b.round_anchor >= b.round_started and late <= math.max(3, learn.burst(b) / 8) then
      b.round_paced = b.round_paced + 1
    end
  end
  if b.learned_cap > 0 and b.round_calm >= b.learned_calm then
    tell(b, 'grown', others, 0)
  elseif b.learned_gap > 0 and b.round_paced >= b.learned_enough then
    tell(b, 'sustained', others, 0)
  end
  return true
end

local ordinary = { late_limited = RULES.LATE.limited, limited = RULES.CLOSED.limited, probe_limited = RULES.PROBE.limited, probe_success = RULES.PROBE.success }

function learn.doubt(b, answer)
  if answer.doubt and answer.hint > 0 and b.learned_since > 0 then
    b.round_doubted = 1
  end
end

function RULES.CLOSED.limited(b, answer)
  if not learn.on(b) or answer.hint > 0 or answer.threshold == 0 then
    local result = ordinary.limited(b, answer)
    if LEARN and b.state == 'OPEN' then
      learn.doubt(b, answer)
      if b.learned_since == 0 and not answer.doubt and (b.cause ~= 'hint' or b.budget_limit == 0 and b.hinted_at > 0 and now - b.hinted_at < FIRST_HINT) then
        learn.begin(b)
      elseif b.cause == 'hint' then
        b.hinted_at = math.floor(now)
      end
      b.refused_at = now_us
      if b.learned_since > 0 then
        pace.clear(b) -- what is learned spaces calls
      end
    end
    return result
  end
  if not answer.first_time() then
    return 'duplicate'
  end
  local others = in_flight(b)
  b.failures, b.last_failure, b.dirty = b.failures + 1, math.floor(now), true
  if b.confirming == 0 then
    tell(b, 'refused', others, b.failures, answer.sent)
  elseif b.probe_token == answer.permit or others == 0 and b.failures > 1 then
    b.refused_at = answer.sent > 0 and answer.sent or now_us
    tell(b, 'dry', others, b.failures, answer.sent)
  elseif others > 0 and b.probe_token == '' and b.confirming <= RAMP_LIMIT then
    b.confirming = math.min(b.confirming, others)
  end
end

function RULES.LATE.limited(b, answer)
  learn.doubt(b, answer)
  return ordinary.late_limited(b, answer)
end

-- A refused probe holds the next one until the instance that reports it has decided, for 1 s at most.
function RULES.PROBE.limited(b, answer)
  local sent = math.floor(b.probe_started * 1000)
  b.refused_at = LEARN and sent or 0
  learn.doubt(b, answer)
  if not learn.on(b) or answer.hint > 0 or answer.threshold == 0 or not OF_A_LIMIT[b.cause] or b.learned_gap == 0 and b.probes < 4 then
    return ordinary.probe_limited(b, answer)
  end
  refused_probe(b, answer, function()
    b.last_failure = math.floor(now)
    clear_probe(b)
    b.probe_after = math.ceil(now + PROBE_BACKOFF)
    tell(b, 'probed', 0, b.probes, sent)
  end)
end

function RULES.PROBE.success(b)
  local sent, of_a_limit, asked, probes, hinted, opened = b.probe_started, OF_A_LIMIT[b.cause], b.probe_due, b.probes, b.cause == 'hint', b.opened_at
  ordinary.probe_success(b)
  if not learn.on(b) then
    return
  end
  local doubted = b.round_doubted > 0
  b.round_doubted = 0
  if not of_a_limit then
    begin_round(b, sent * 1000, 1)
  else
    local began = b.round_started / 1000
    local late = doubted or asked > 0 and sent - asked > math.max(LATE, (asked - began) / 8) or
      b.learned_gap == 0 and sent - opened < REFUSED_PART * (sent - began)
    tell(b, late and 'late' or hinted and 'hinted' or 'recovered', in_flight(b), probes, sent * 1000)
  end
end
