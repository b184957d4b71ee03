-- pace: a limiter that spaces calls, such as a leaky bucket without a burst, accepts the probe and
-- refuses the next call. After PACE.AFTER such slow starts in a row a slow start stays at 1 call in
-- flight, and a call begins no sooner than the pace, in ms, after the last accepted one: less each
-- time until one is refused. Then the shortest pace that was accepted is kept.
--
--   spaced         how many calls in a row have shown that
--   pace_from      start of the last accepted call; pace_gap: the present one began so much later
--   pace_accepted  the shortest pace that was accepted, 0 if none was
--   pace_refused   the longest one that was refused, 0 if none was
--   pace_tested    cooldowns since quiet_since after which a shorter one is tried

local PACE = {
  AFTER = 2,     -- slow starts in a row that were refused at their second call
  FIRST = 16000, -- ms: the longest one that is tried first
  LEAST = 50,    -- ms: the slow start goes on if the API bears it
  STEP = 0.85,   -- each to the one before
  SURE = 12,     -- calls that have shown it: then one refusal only makes it longer; and so many follow each
                 -- other, for a cooldown at least, until a shorter one is tried again
}
local pace = {}

function pace.clear(b)
  b.spaced, b.pace_accepted, b.pace_refused = 0, 0, 0
end

function pace.on(b)
  return b.ramp == 1 and b.spaced >= PACE.AFTER
end

local function shorter(b)
  return math.floor(PACE.STEP * b.pace_accepted)
end

function pace.found(b)
  return b.pace_accepted > 0 and shorter(b) <= b.pace_refused
end

function pace.get(b)
  if b.pace_accepted == 0 then
    return math.ceil(math.min(b.last_cooldown, math.max(2 * b.pace_refused, math.min(PACE.FIRST, b.last_cooldown / 2))))
  end
  return pace.found(b) and b.pace_accepted or shorter(b)
end

-- pace.wait is for how many ms no further call may start.
function pace.wait(b)
  return pace.on(b) and math.ceil(b.pace_from + pace.get(b) - now) or 0
end

-- pace.failed notes that a call failed in another way: the limiter may have counted it.
function pace.failed(b)
  b.pace_from, b.pace_gap = b.pace_from + b.pace_gap, 0
end

-- pace.refused notes that a CLOSED breaker's call was, and returns true if that tested a shorter pace than one
-- that was accepted: calls go on at the accepted one, and the breaker need not open. One caller has no slow start until its calls
-- are paced: before, an opening soon after the probe counts.
function pace.refused(b, one_caller)
  local at = pace.on(b) and pace.get(b) or 0
  if b.ramp > 1 or at == 0 and now - b.pace_from > b.last_cooldown / 2 then
    pace.clear(b) -- the last accepted call is too long ago
  elseif b.ramp == 0 and not one_caller then
    return
  elseif at == 0 then
    b.spaced, b.pace_refused = b.spaced + 1, b.ramp == 1 and math.max(b.pace_refused, b.pace_gap) or 0
  elseif at >= b.last_cooldown or b.pace_gap > 2 * at or at == b.pace_accepted and b.spaced < PACE.SURE then
    pace.clear(b) -- it was accepted before, or the probes come as often
  elseif at == b.pace_accepted then
    b.pace_accepted, b.pace_refused, b.spaced, b.pace_tested = math.ceil(at / PACE.STEP), at, PACE.AFTER, 1
  else
    b.pace_refused, b.dirty = at, true
    b.pace_tested = math.ceil((now - b.quiet_since + math.max(COOLDOWN, PACE.SURE * b.pace_accepted)) / COOLDOWN)
    pace.failed(b)
    return b.pace_accepted > 0
  end
end

-- pace.accepted notes that a call of a paced slow start was, and returns false if the API bears more.
function pace.accepted(b)
  local at, found = pace.get(b), pace.found(b)
  local waited = b.pace_gap <= 2 * at -- else the calls came more slowly by themselves
  b.spaced, b.pace_from = b.spaced + 1, b.pace_from + b.pace_gap
  if waited then
    b.pace_accepted = at
  end
  if found and now - b.quiet_since > b.pace_tested * COOLDOWN then
    b.pace_refused = 0
  end
  return found or waited and at > PACE.LEAST
end
