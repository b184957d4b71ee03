-- learn: limits that the API shows by 429 alone. The rules are in Go (breaker/internal/learner): this file starts
-- and counts calls by the numbers of a Meter and a Gate, and notifies the instance that reports a call when a number is
-- reached. The names are as in the Go types; instants and lengths are µs, but learned_since and probe_due ms.
--
--   learned_since    when the first refusals opened; 0: nothing is learned, nothing is counted
--   learner          State, as JSON, which this file does not read
--   learned_gap, learned_length, learned_quota, learned_asks, learned_cap, learned_careful, learned_enough, learned_calm  Gate
--   round_started, round_anchor, round_used, round_hold, round_total, round_paced, round_calm, refused_at  Meter
--   confirming       Meter.Confirm; the call that is to confirm a limit has probe_token
--   probe_due        when the last probe could start
--   round_doubted    1 if a hint opened that a call got which may be refused for its own sake: the round teaches nothing

local LEARN = given('learn') ~= ''
local NONE = 90000000000 -- µs, 25 hours: longest of the Go package
local FASTEST = 1000 -- µs: fastest of it
local TICK = 50000 -- µs by which an instance may name the start of a call too early
local learn = {}

-- learn.on says that limits of the breaker are learned. An announced budget is better.
function learn.on(b)
  return LEARN and b.learned_since > 0 and b.metered == 0
end

-- emit adds an event to what the script returns: kind, calls in flight beside it, refusals in a row, when it was sent.
local function emit(b, kind, others, refused, sent)
  b.emitted = kind .. ':' .. int(others) .. ':' .. int(refused) .. ':' .. int(sent or 0)
end

-- learn.emitted are the events of both breakers.
function learn.emitted(parent, child)
  return (parent.emitted and 'learn:' .. parent.emitted .. ' ' or '') .. (child and child.emitted and 'key-learn:' .. child.emitted or '')
end

local function begin_round(b, at, used)
  b.before = { b.round_started, b.round_anchor, b.round_used, b.round_hold, b.counted or false } -- see finish
  b.round_started, b.round_anchor, b.round_used, b.round_hold, b.counted = math.floor(at), math.floor(at), used, 0, true
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

-- begun is how many calls in flight began at an instant or later, µs: by their leases. A longer lease began no later.
local function begun(b, at)
  in_flight(b) -- which removes those whose lease is over
  return redis.call('ZCOUNT', b.inflight_key, int(math.ceil(at / 1000 + number(named.lease)) - 1), '+inf')
end

-- most is how many calls that began in the round may be in flight while a quota is known: what is left of it. Until it is known
-- that the quota has grown, or not, half of that, and a few beyond it. In the first eighth of a round no more than were
-- accepted: a sliding window may not have all of them yet.
local function most(b)
  local left = b.learned_quota - b.round_used
  if b.learned_asks > 0 then
    left = (left > 0 and left or math.min(-left, b.learned_quota / 8)) / 2
  end
  if now_us < b.round_started + b.learned_length / 8 then
    left = math.min(left, b.round_used)
  end
  return math.max(1, math.floor(left))
end

-- as_they_come is when the next call may start while a quota is known, µs. The first one after a round whose quota was used up
-- begins the next round, if it is accepted.
local function as_they_come(b)
  local over_at = b.round_started + b.learned_length
  if now_us >= over_at then
    if b.round_used >= b.learned_quota then
      local late = math.floor((now_us - over_at) / (b.learned_length / 8)) -- the first one may take long, or hang
      return begun(b, over_at) <= late and 0 or now_us + ASK_AGAIN * 1000
    end
    begin_round(b, now_us, 0)
    over_at = now_us + b.learned_length
  end
  if b.learned_asks == 0 and b.round_used >= b.learned_quota then
    return over_at
  elseif now_us < b.round_started + b.round_hold then
    return b.round_started + b.round_hold
  end
  return begun(b, b.round_started) < most(b) and 0 or now_us + ASK_AGAIN * 1000
end

-- wakes says that more calls may start, and that instances should know: not at each accepted call.
local function wakes(b, others)
  local doubled = b.round_used == 2 ^ math.floor(math.log(math.max(1, b.round_used)) / math.log(2) + .5)
  return others + 1 >= most(b) - 1 and (doubled or b.learned_asks > 0 and b.round_used >= b.learned_quota / 2)
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
  local wait = 0
  if b.learned_quota > 0 then
    wait = as_they_come(b) - now_us
  elseif b.learned_gap > 0 then
    wait = due(b, in_flight(b)) - now_us
  end
  if wait > 0 then
    return 'learned', math.ceil(math.min(wait / 1000, COOLDOWN))
  end
  return nil
end

-- learn.nothing says that there is no limit: none was met for longer than any window, or the API accepts any pace.
function learn.nothing(b)
  return b.learned_since > 0 and b.learned_cap == 0 and (b.learned_gap == 0 and now_us - b.round_started > NONE or b.learned_gap > 0 and b.learned_gap <= FASTEST)
end

-- learn.count counts an accepted call, sent at that instant.
function learn.count(b, sent)
  if sent >= b.round_started then
    b.round_used, b.round_total = b.round_used + 1, b.round_total + 1
  end
  b.counted = true
end

-- learn.accepted counts an accepted call of a CLOSED breaker, sent at that instant, beside others.
function learn.accepted(b, sent, others)
  learn.count(b, sent)
  if b.confirming > 0 then
    return
  elseif learn.nothing(b) then
    emit(b, 'none', others, 0)
    return
  elseif b.learned_careful > 0 then
    if others + 1 >= math.max(1, math.floor((b.round_used - 1) / b.learned_careful)) and others < (capacity > 0 and capacity or 64) then
      b.dirty = true -- another call may start
    end
    return
  end
  b.round_calm = b.round_calm + 1
  if b.learned_quota > 0 then
    b.dirty = b.dirty or wakes(b, others)
    if b.round_used > b.learned_quota and sent >= b.round_started + b.learned_length - TICK then
      emit(b, 'ended', others, 0, sent)
      return
    end
  elseif b.learned_gap > 0 then
    local late = (now_us - due(b, others)) / b.learned_gap
    if b.round_anchor >= b.round_started and late <= math.max(3, learn.burst(b) / 8) then
      b.round_paced = b.round_paced + 1
    end
  end
  if b.learned_cap > 0 and b.round_calm >= b.learned_calm then
    emit(b, 'grown', others, 0)
  elseif b.learned_quota == 0 and b.learned_gap > 0 and b.round_paced >= b.learned_enough then
    emit(b, 'sustained', others, 0)
  end
end
