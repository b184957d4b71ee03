-- cooldown: how long an opening lasts. It grows by levels.

-- cooldown is how long the next opening without a hint lasts, ms.
local function cooldown(b)
  local length = COOLDOWN * MULTIPLIER ^ b.level
  if length > COOLDOWN then
    length = length * (1 + JITTER)
  end
  return math.max(1, math.min(length, MAX_COOLDOWN))
end

-- hinted bounds the API's hint, ms.
local function hinted(hint)
  return math.max(1, math.min(hint, MAX_COOLDOWN))
end

-- raise_level makes the next cooldown longer, up to the longest.
local function raise_level(b)
  if MULTIPLIER > 1 and COOLDOWN * MULTIPLIER ^ b.level < MAX_COOLDOWN then
    b.level = b.level + 1
  end
end

-- fall_back lowers the level by 1 for each last cooldown that the breaker has been CLOSED.
-- Every reader computes the same, so the result need not be written.
local function fall_back(b)
  b.quiet_since = math.min(b.quiet_since, math.floor(now)) -- the clock may have gone back
  if b.state == 'CLOSED' and b.level > 0 then
    local steps = math.floor((now - b.quiet_since) / math.max(1, b.last_cooldown))
    b.level = math.max(0, b.level - steps)
    b.quiet_since = b.quiet_since + steps * b.last_cooldown
  end
end
