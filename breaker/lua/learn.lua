-- learn: limits of which the API says nothing but 429 (docs/adr/0038). It replaces rules of transitions.lua for answers without a hint, once 429 have opened the breaker.
--
-- A round is learned_calls calls (0 is unknown) in learned_window ms from its first call on. It
-- is dry when a call is refused that was alone, or was made again and was alone then. It ends at
-- round_started + learned_window, or earlier at a look that tests whether the window is shorter.
--
--   learned_short   the longest time after which the round was known to go on
--   learned_trust   how often the window was seen, up to 3; from 2 on it may outlast the cooldown
--   learned_since   when the first refusals opened; 0: nothing is learned, nothing is counted
--   learned_rate    1 if the limit is a rate, such as a token bucket's: the round began when it was last dry
--   learned_cap     calls in flight that the API bears, 0 is no limit. One more after cap_after
--                   calls, of which cap_accepted were made
--   round_started, round_accepted, round_ended  instant of its first call, its successful calls, when
--                   it was dry (0: something else opened)
--   round_look      the present round began so many ms after the last, which is shorter than the window
--   round_count     rounds since looks began; round_same: in a row that had the same number of calls
--   round_metered   since when calls are counted in Redis, because few are left
--   round_confirmed when a call was let in that was to confirm a limit; confirming: calls that
--                   were in flight at the refusal that is to be confirmed
--   round_took      ms from the last round's first call until it was dry
--   quick_after     no slow start is quick before that instant
--   dry_at, dry_span  when a limit was dry last, and how long after the time before
--   long_…          a second, longer limit: its window, how often it was seen, when it began, its
--                   calls, and those accepted since

local LEARN = given('learn') ~= ''
local LEARNING = {
  LONGEST_WAIT = 90000000, -- ms: 25 hours
  LOOK_EVERY = 16,         -- rounds after which a window that was found is looked at again
  GROW_AFTER = 64,         -- calls after which the cap grows by 1; 4 times as many after each failure
  GROW_AFTER_MAX = 4096,
  PATIENT_AFTER = 8,       -- refused probes of an incident after which waits outlast the cooldown
  PACED = 8,               -- calls of a window from which on a slow start spaces them
  USED = .98,              -- part of a rate that is used
  QUICK_AFTER = 64,        -- windows after which a quick slow start is tried again
  TRIED_AFTER = 4,         -- windows after which a call tries whether the rate has grown, at most
}

-- learns says that limits of the breaker are learned. An announced budget is better.
local function learns(b)
  return LEARN and b.learned_since > 0 and b.metered == 0
end

-- new_round begins one at that instant, because the last is over and was not used up.
local function new_round(b, at)
  if b.learned_calls > 0 and b.round_accepted > b.learned_calls then
    b.learned_calls = 2 * b.round_accepted
  end
  b.round_started, b.round_accepted, b.round_look, b.dry_at, b.dirty = math.floor(at), 0, 0, 0, true
end

-- sure_window is the length in ms that the window is sure to have: of one that was seen once at most four
-- cooldowns, because a time without calls looks like a window.
local function sure_window(b)
  return b.learned_trust >= 2 and b.learned_window or math.min(b.learned_window, 4 * COOLDOWN)
end

-- LEARNING.quick says that a slow start may use the window up in a 16th of it: the last rounds had the same number of
-- calls, and no quick round was refused early, as one of a sliding window is.
function LEARNING.quick(b)
  return b.round_same >= 2 and b.learned_trust >= 2 and now >= b.quick_after
end

-- due returns how many calls the pace has allowed since the round began, and its ms from one call to the next.
-- The pace of a rate is USED of that rate. A slow start spreads the calls of a window over a quarter of it, or over
-- a little longer than the last round took, up to three quarters.
local function due(b)
  if b.learned_rate > 0 then
    local gap = b.learned_window / b.learned_calls
    return LEARNING.USED * (now - b.round_started) / gap, gap
  end
  local gap = sure_window(b) / b.learned_calls
  gap = LEARNING.quick(b) and gap / 16 or math.min(math.max(gap / 4, 1.02 * b.round_took / b.learned_calls), .75 * gap)
  return 1 + (now - b.round_started) / gap, gap
end

-- left returns how many calls remain until the learned limit, or how many were made beyond it; of a rate,
-- how many the pace allows now.
local function left(b)
  if b.learned_rate > 0 then
    return math.max(0, due(b) - b.round_accepted)
  end
  return math.abs(b.learned_calls - b.round_accepted)
end

local function round_over(b)
  return b.learned_rate == 0 and b.state == 'CLOSED' and b.round_started > 0 and b.learned_window > 0 and now >= b.round_started + b.learned_window
end

-- few_left says that few calls of the round are left, or few more than the last were made: then
-- calls are counted in Redis.
local function few_left(b)
  local few = b.learned_calls > 0 and left(b) <= low()
  if few ~= (b.round_metered > 0) then
    if few then
      redis.call('DEL', b.joined_key)
    end
    b.round_metered, b.dirty = few and math.floor(now) or 0, true
    join(b)
  end
  return few
end

-- count_accepted counts n successful calls, the first of them for ms ago.
local function count_accepted(b, n, ms)
  if n == 0 or b.learned_since == 0 then
    return
  end
  if round_over(b) then
    new_round(b, math.max(now - ms, b.round_started + b.learned_window))
  end
  b.round_accepted, b.long_accepted, b.dirty = b.round_accepted + n, b.long_accepted + n, true
  if b.state == 'CLOSED' then
    few_left(b)
  elseif b.state == 'OPEN' and b.round_ended > 0 and b.round_started > 0 and b.learned_rate == 0 then
    b.learned_calls = math.max(b.learned_calls, b.round_accepted) -- instances report them late
  end
end

-- count_reported counts the calls that the instance has not reported one by one.
local function count_reported(b)
  local prefix = b.key and 'key_' or ''
  count_accepted(b, number(given(prefix .. 'accepted')), number(given(prefix .. 'accepted_for')))
end

-- others is how many other calls are in flight. Without metering any number may be.
local function others(b)
  if b.ramp > 0 or b.learned_cap > 0 or b.round_metered > 0 then
    return in_flight(b) + (b.round_metered > 0 and unmetered(b) or 0)
  end
  return math.max(1, capacity) - 1
end

-- patience is how long a wait may be because the API has refused so many probes since it was dry:
-- it may extend its limit with each of them, longer than a cooldown.
local function patience(b, since)
  return b.probes >= LEARNING.PATIENT_AFTER and (now - since) / 4 or 0
end

-- open_learned opens for wait ms, longer than the cooldown only if the window was seen twice, or
-- many probes were refused. If that is before the round ends, the probe is a look.
local function open_learned(b, cause, wait, longest)
  local ended = b.round_ended
  longest = math.max(longest or 0, cooldown(b), patience(b, ended), b.learned_trust >= 2 and b.learned_window or 0)
  wait = math.max(1, math.min(wait, longest, LEARNING.LONGEST_WAIT))
  open(b, cause, wait)
  b.round_ended, b.round_look = ended, 0
  local after = now + wait - b.round_started
  if b.round_started > 0 and after < .99 * b.learned_window then
    b.round_look = math.floor(after)
  end
end

-- await_rate opens until the API will have had calls again.
local function await_rate(b)
  open_learned(b, 'learned', math.max(math.min(cooldown(b), b.learned_window), 1.5 * b.learned_window / b.learned_calls))
  b.round_look = 0
end

local function new_rate_round(b)
  b.round_started, b.round_accepted, b.round_ended = math.floor(now), 0, math.floor(now)
  await_rate(b)
end

-- rate_dry opens: the calls since the round began are the rate. If there should have been more, the limit may be none.
local function rate_dry(b)
  if left(b) < 2 then
    local length = b.learned_calls * (now - b.round_started) / math.max(1, b.round_accepted)
    b.round_same = math.abs(length - b.learned_window) <= .05 * b.learned_window and b.round_same + 1 or 0
    b.learned_window = math.ceil(math.max(b.learned_window / 2, math.min(length, 2 * b.learned_window)))
    b.learned_trust = math.min(3, b.learned_trust + 1)
  else
    b.learned_trust, b.round_same = math.max(1, b.learned_trust - 1), 0
    b.learned_rate = b.learned_trust > 1 and 1 or 0 -- then its window is none of the API's, and not trusted
  end
  new_rate_round(b)
end

-- long_wait is for how long the second, longer limit lets no call through, 0 if it does or is not known well. Each fourth time
-- calls try it.
local function long_wait(b)
  if b.long_seen < 2 or b.long_seen % 4 == 0 or b.long_accepted < .97 * b.long_calls then
    return 0
  end
  return math.max(0, b.long_started + b.long_window - now)
end

-- dry opens: the round is used up.
local function dry(b)
  local had = b.learned_calls
  local early = b.round_started > 0 and b.round_look == 0 and b.round_same > 0 and b.learned_trust >= 2 and b.round_accepted < .5 * had
  local same = b.round_accepted >= had - math.max(1, .1 * had) and b.round_accepted <= had + math.max(1, .02 * had)
  if b.round_look == 0 or same then
    b.round_same = same and b.round_same + 1 or 0
  end
  local span, was = b.dry_at > 0 and now - b.dry_at or 0, b.dry_span
  b.dry_at, b.dry_span, b.round_took = math.floor(now), math.floor(span), b.round_started > 0 and math.floor(now - b.round_started) or 0
  local calls = b.round_started > 0 and math.max(1, b.round_accepted, b.learned_trust > 1 and math.floor(had / 2) or 0) or 0
  local rate = was > 0 and had * span / was or 0
  if b.round_look > 0 and b.round_accepted > 1 and span < .8 * was and math.abs(b.round_accepted - rate) <= math.min(.3 * rate, had - b.round_accepted) then
    -- A part of the time had the same part of the calls: the limit is a rate.
    b.learned_rate, b.learned_calls, b.learned_window, b.learned_trust = 1, b.round_accepted + had, math.floor(span + was), 3
    b.learned_short, b.round_count, b.round_same = 0, 0, 0
    new_rate_round(b)
    return
  elseif b.round_look > 0 and b.round_accepted <= .9 * had and (b.round_accepted <= .5 * had or b.round_look <= .75 * b.learned_window) then
    -- The look has found what was left: it is still the round before.
    b.learned_short, b.round_started = math.max(b.learned_short, b.round_look), b.round_started - b.round_look
  elseif not early then
    if b.round_look > b.learned_short then
      b.learned_window, b.round_count, b.learned_trust = b.round_look, 0, math.min(3, b.learned_trust + 1)
    end
    b.learned_calls = calls
  end
  b.round_ended = math.floor(now)
  local wait = cooldown(b)
  if b.learned_window > 0 then
    b.round_count = b.round_count + 1
    if b.round_count >= LEARNING.LOOK_EVERY then
      b.learned_short, b.round_count = math.min(b.learned_short, math.floor(b.learned_window / 2)), 0
    end
    local length = b.learned_window
    if early then
      length = length / 2 -- a sliding window gets calls back before its end
    elseif length - b.learned_short > .02 * length then
      length = (length + b.learned_short) / 2
    end
    wait = math.max(b.round_started + length - now, math.min(COOLDOWN, b.learned_window / 16), long_wait(b))
  end
  open_learned(b, b.learned_window > 0 and 'learned' or 'threshold', wait, long_wait(b))
end

-- stops says that the round ends without a refusal, because the last ones had so many calls, too.
-- Each fourth such round goes on until a call is refused, or LOOK_EVERYth if a longer limit is known.
local function stops(b)
  return b.learned_rate == 0 and b.round_same >= 2 and b.learned_trust >= 2 and b.confirming == 0 and
    b.learned_window - b.learned_short <= .02 * b.learned_window and
    b.round_started + b.learned_window - now > math.min(COOLDOWN, b.learned_window / 16)
end

-- learned_refusal is why no further call may start in a CLOSED breaker, and the ms after which to
-- ask again at the latest; nil if one may. Calls in flight are at most half of what is left.
local function learned_refusal(b)
  if not learns(b) then
    return nil
  end
  if round_over(b) then
    new_round(b, now)
  end
  local unused = b.learned_rate > 0 and left(b) - b.learned_calls or 0
  if unused > 0 then -- there were few jobs: no more calls than those of a window are taken to be left
    b.round_started = math.floor(b.round_started + unused * b.learned_window / b.learned_calls)
  end
  local few = few_left(b)
  local flying = others(b)
  if b.round_started > 0 and b.learned_window > 0 and (b.learned_rate > 0 and few or b.ramp > 0 and b.learned_calls >= LEARNING.PACED) then
    local calls, gap = due(b)
    local ahead = b.round_accepted + flying + 1 - calls
    local tries = b.learned_rate > 0 and now - b.round_started > math.min(2 ^ b.round_same, LEARNING.TRIED_AFTER) * b.learned_window
    if ahead > 0 and not (tries and flying == 0) then
      return 'learned', math.ceil(math.min(ahead * gap, cooldown(b)))
    end
  end
  if few and stops(b) and b.round_accepted + flying >= b.learned_calls then
    if flying > 0 then
      return 'learned', 1000
    end
    b.round_same = b.round_same >= (b.long_seen > 0 and LEARNING.LOOK_EVERY or 4) and 1 or b.round_same + 1
    b.round_ended, b.dry_at = math.floor(now), 0
    open_learned(b, 'learned', math.max(b.round_started + b.learned_window - now, long_wait(b)), long_wait(b))
    return 'open', math.ceil(b.open_until - now)
  end
  if few and flying >= math.max(1, math.floor(left(b) / 2)) or b.failures > 0 and flying > 0 and (few or b.ramp > 0) then
    return 'learned', 1000
  end
  return nil
end

-- confirms makes the call the one that confirms the limit, if one is to.
local function confirms(b, token)
  if b.confirming > 0 then
    b.probe_token, b.dirty = token, true
  end
end

-- ask_again lets one call in when no other is in flight: it confirms the limit, or was not the
-- only one to be too many at once.
local function ask_again(b, flying)
  b.confirming, b.failures, b.ramp, b.ramp_ok, b.probe_token = math.max(1, flying), 0, 1, 0, ''
end

-- confirmed: the call was accepted. The limit is one of calls in flight, or the round began later
-- than was thought; a guess (keys.lua) was wrong. That costs 32 times as long as it took, at most a
-- cooldown, and at least a minute. Three may follow each other, the next ones wait until that time
-- has passed: wrong guesses take at most 3 % of the time.
local function confirmed(b)
  local wrong, began, after = b.confirming > RAMP_LIMIT, b.round_confirmed, b.guess_after
  if not wrong and (b.learned_trust >= 2 or b.confirming == 1 and b.learned_calls >= LEARNING.PACED) then
    b.learned_short, b.learned_window = b.learned_window, math.ceil(b.learned_window * 65 / 64)
    b.learned_trust, b.round_started = math.max(1, b.learned_trust - 1), math.floor(math.min(now, b.round_started + b.learned_window / 64))
  elseif not wrong and b.confirming < slow_start_end() then
    b.learned_cap, b.cap_accepted, b.cap_after = b.confirming, 0, LEARNING.GROW_AFTER
  end
  b.confirming, b.probe_token, b.round_confirmed = 0, '', math.floor(now)
  b.ramp, b.ramp_ok, b.dirty = slow_start_end() > 1 and 1 or 0, 0, true
  if wrong then
    if b.learned_since == began then
      clear_learned(b) -- the guess was all that there was
    end
    local cost = math.max(60000, 32 * math.min(now - began, cooldown(b)))
    b.guess_after = math.floor(math.max(after, now - 2 * cost) + cost)
  end
end

-- learn_success is for each successful call of a CLOSED breaker. It returns false if a slow start
-- does not count it.
local function learn_success(b, token)
  if not learns(b) then
    return true
  end
  if b.confirming > 0 then
    if b.probe_token ~= token then
      return false -- it began before
    end
    confirmed(b)
  end
  if b.ramp > 0 and b.round_started > 0 and b.learned_window > 0 and not pace.on(b) then
    if b.learned_calls == 0 and now - b.round_started < sure_window(b) / 2 or b.learned_calls > 0 and b.round_accepted + b.ramp >= due(b) then
      return false -- it needs no more in flight
    end
  end
  if b.learned_cap > 0 then
    b.cap_accepted, b.dirty = b.cap_accepted + 1, true
    if b.cap_accepted >= b.cap_after then
      b.learned_cap, b.cap_accepted, b.cap_after = b.learned_cap + 1, 0, math.max(LEARNING.GROW_AFTER, math.floor(b.cap_after / 2))
      if b.learned_cap >= slow_start_end() then
        b.learned_cap = 0
      end
    end
  end
  return true
end

local ordinary = { limited = RULES.CLOSED.limited, probe_limited = RULES.PROBE.limited, probe_success = RULES.PROBE.success }

function RULES.CLOSED.limited(b, answer)
  local nothing_learned = b.learned_since == 0 or b.round_started == 0 and b.confirming == 0
  if not LEARN or answer.hint > 0 or answer.threshold == 0 or nothing_learned or b.metered > 0 then
    local result = ordinary.limited(b, answer)
    if LEARN and b.state == 'OPEN' and b.cause ~= 'hint' then
      b.learned_since = b.learned_since > 0 and b.learned_since or math.floor(now)
      b.round_started, b.round_ended, b.dry_at = b.learned_rate > 0 and math.floor(now) or 0, math.floor(now), math.floor(now)
    end
    return result
  end
  if not answer.first_time() then
    return 'duplicate'
  end
  b.failures, b.last_failure, b.dirty = b.failures + 1, math.floor(now), true
  if b.learned_rate > 0 then
    rate_dry(b)
    return
  end
  local flying = others(b)
  local calls = b.learned_calls > 0 and b.round_accepted / b.learned_calls or 0
  if b.confirming > 0 then
    if b.probe_token == answer.permit then
      b.learned_cap = 0
      dry(b)
    end
  elseif b.ramp > 0 and calls < .9 and LEARNING.quick(b) then
    b.quick_after, b.failures = math.floor(now + LEARNING.QUICK_AFTER * b.learned_window), 0
  elseif flying == 0 and calls >= .9 then
    dry(b)
  elseif flying == 0 or b.learned_cap == 0 and (b.failures >= answer.threshold or calls >= .9 and b.round_metered > 0) then
    local counted = b.ramp > 0 or b.round_metered > 0 or b.learned_cap > 0
    if not counted and flying > 0 or b.round_confirmed - b.round_started > (now - b.round_started) / 2 then
      dry(b)
    else
      ask_again(b, flying)
    end
  elseif b.learned_cap > 0 and (b.failures >= answer.threshold or flying + 1 >= b.learned_cap) then
    b.learned_cap, b.cap_accepted = math.max(1, math.min(b.learned_cap - 1, flying)), 0
    b.cap_after = math.min(4 * b.cap_after, LEARNING.GROW_AFTER_MAX)
  end
end

-- refused: the probe that was sent at that instant. Where the window is known, waits begin with a
-- 64th of it and double.
local function refused(b, sent)
  if b.learned_rate > 0 and b.probes < 3 then
    await_rate(b)
    return
  end
  if b.learned_rate > 0 then
    b.learned_rate, b.learned_trust, b.learned_short = 0, 1, 0 -- its window is none of the API's
  end
  local length = sent - b.round_ended
  if b.round_started > 0 then
    length = math.min(sent - b.round_started, 2 * length)
  end
  b.learned_short = math.max(b.learned_short, length)
  local rest = b.round_started + b.learned_window - now
  if b.learned_window == 0 then
    open_learned(b, 'probe', math.max(cooldown(b), patience(b, b.round_ended)))
  elseif b.round_started > 0 and rest > 0 then
    open_learned(b, 'learned', rest)
  else
    local long = (b.long_seen % 4 == 2 and .97 or 1) * b.long_window + b.long_started - now
    if b.long_seen >= 1 and long > 0 and b.long_accepted >= .9 * b.long_calls then
      open_learned(b, 'learned', long, b.long_seen >= 2 and b.long_window or 0)
    else
      length, rest = b.learned_window, rest
      if b.long_seen >= 2 and b.long_started + 1.03 * b.long_window > now and b.long_accepted >= .9 * b.long_calls then
        length, rest = b.long_window, b.long_started + b.long_window - now
      end
      open_learned(b, 'learned', math.max(50, length / 64, rest / 2, -rest))
    end
  end
end

function RULES.PROBE.limited(b, answer)
  if not learns(b) or answer.hint > 0 or b.round_ended == 0 then
    return ordinary.probe_limited(b, answer)
  end
  refused_probe(b, answer, function()
    b.last_failure = math.floor(now)
    if b.learned_window == 0 then
      raise_level(b)
    end
    refused(b, b.probe_started)
  end)
end

-- recovered: the probe that was sent at that instant was accepted.
local function recovered(b, sent, ended)
  local length, window = sent - ended, b.learned_window
  if b.round_started > 0 then
    length = math.min(sent - b.round_started, 2 * length) -- a slow start of the round is no part of it
  end
  length = math.max(1, math.floor(length))
  if b.round_look > 0 or b.learned_rate > 0 or ended == 0 then
    return -- judged when the round is dry; something else opened
  elseif window > 0 and length <= 1.15 * window then
    b.learned_window, b.learned_trust = math.max(window, length), math.min(3, b.learned_trust + 1)
  elseif window > 0 and length <= 2 * window then
    b.learned_window, b.learned_trust = length, math.max(1, b.learned_trust - 1)
  elseif b.learned_trust <= 1 then
    b.learned_window, b.learned_trust, b.round_count = length, 1, 0
    b.learned_short = 0
  else
    b.learned_trust = b.learned_trust - 1
    if b.long_started > 0 then
      local long = sent - b.long_started
      b.long_seen = math.abs(long - b.long_window) < .15 * b.long_window and b.long_seen + 1 or 1
      b.long_window, b.long_calls = long, b.long_accepted
    end
    b.long_started, b.long_accepted = sent, 0
  end
end

function RULES.PROBE.success(b)
  local sent, ended, probes = b.probe_started, b.round_ended, b.probes
  ordinary.probe_success(b)
  if LEARN and b.learned_since > 0 then
    if probes > 0 then -- one test a round: a probe was refused already
      b.quick_after = math.floor(math.max(b.quick_after, sent + b.learned_window))
    end
    recovered(b, sent, ended)
    if b.learned_rate > 0 and ended > 0 then
      b.round_accepted, b.round_ended = b.round_accepted + 1, 0
    else
      b.round_started, b.round_accepted, b.round_ended = sent, 1, 0
    end
  end
end
