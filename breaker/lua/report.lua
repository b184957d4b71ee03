-- report: tells how a permitted call ended.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude
--       11  id of the permit; a probe's is its token
--       12  generation of the permit: the version that its instance knew
--       13  "success", "limited" (the API said: rate limited), "failure", or
--           "neutral" (the call told nothing, or was not made)
--       14  the API's hint in ms, 0 is none (or none that is trusted)
--       15  threshold: consecutive rate-limited answers that open; 0: no answer of
--           this instance opens
--       16  whose limit it is: "user", "global" or "" (the API did not say)
--       17  calls left as the API says, "" if it does not; 18 ms until the window
--           ends; 19 calls of a whole window, 0 is unknown
--       20  sequence, 21 and 22 calls of this instance in flight that are not
--           counted, of the destination and of the key
-- Returns result
--   "applied"    it was the current state's, and counted
--   "stale"      it was older than the current state; of those only a
--                rate-limited one tells something: a call wasted, a later end
--   "duplicate"  it had been counted before

local id, permit, outcome = ARGV[11], tonumber(ARGV[12]), ARGV[13]
local hint, threshold, scope = tonumber(ARGV[14]), tonumber(ARGV[15]), ARGV[16]
local parent, child = read_breakers()
local owner = (child and scope ~= 'global') and child or parent

local known -- whether this report has been counted before
local function seen()
  if known == nil then
    known = not first_time(id)
  end
  return known
end

-- reopen opens from HALF_OPEN or slow start.
local function reopen(b, cause)
  if hint > 0 then
    open(b, 'hint', hinted(hint))
  else
    open(b, cause, 'cooldown')
  end
end

-- limited counts a rate-limited answer in CLOSED.
local function limited(b)
  if threshold == 0 then
    return 'applied'
  end
  if seen() then
    return 'duplicate'
  end
  b.failures, b.last_failure, b.dirty = b.failures + 1, math.floor(now), true
  if b.ramp > 0 then
    reopen(b, 'ramp')
  elseif hint > 0 then
    open(b, 'hint', hinted(hint))
  elseif b.failures >= threshold then
    open(b, 'threshold', 'cooldown')
  end
  return 'applied'
end

-- ended counts a call out, and a success of slow start if it had been counted in.
local function ended(b, was_counted)
  local told = ARGV[17] ~= '' and b == owner
  if b.metered > 0 and not told and outcome ~= 'neutral' and b.budget_left > 0 and
      (was_counted or permit >= b.generation) and not seen() then
    b.budget_left, b.dirty = b.budget_left - 1, true -- it cost one all the same
    if b.budget_left == 0 and b.budget_reset == 0 then
      clear_budget(b) -- the API does not tell any more, and nobody knows until when to wait
    end
  end
  if not was_counted then
    return
  end
  if b.ramp > 0 and outcome == 'success' and permit >= b.generation then -- of this slow start
    b.ramp_ok, b.dirty = b.ramp_ok + 1, true
    if b.ramp_ok >= b.ramp then
      b.ramp, b.ramp_ok = 2 * b.ramp, 0
      if b.ramp >= ramp_end() then
        b.ramp = 0 -- it has recovered
      end
    end
  end
  b.dirty = true -- whoever waits for room is to hear of it
end

local LONGEST_WINDOW = 86400000 -- ms that a window is taken to last at most

-- budget takes note of what the API says is left. A window is told by its end.
local function budget(b)
  local left, limit = tonumber(ARGV[17]), tonumber(ARGV[19])
  local reset = now + math.min(tonumber(ARGV[18]), math.max(MAX_COOLDOWN, LONGEST_WINDOW))
  local rest = b.budget_reset > now and b.budget_reset or 0
  local other = rest > 0 and reset < rest - SAME_WINDOW
  if other then
    -- Of a window before, or of another limit that the API has: of the one that is
    -- counted it has cost one all the same.
    if b.budget_left > 0 then
      b.budget_left, b.dirty = b.budget_left - 1, true
    end
  elseif rest > 0 and reset <= rest + SAME_WINDOW then
    if left < b.budget_left or reset > rest then
      -- The limit of a sliding window, or of a bucket, is whole later with each call.
      b.budget_left, b.budget_reset, b.dirty = math.min(left, b.budget_left), math.max(rest, math.ceil(reset)), true
    end
  elseif left > little() then
    if b.metered > 0 then
      clear_budget(b)
      b.dirty = true
    end
  else
    if b.metered == 0 then
      redis.call('DEL', b.joined_key)
    end
    b.metered = b.metered > 0 and b.metered or math.floor(now)
    b.budget_left, b.budget_reset, b.dirty = left, math.ceil(reset), true
  end
  if not other and limit > 0 and limit ~= b.budget_limit then
    b.budget_limit, b.dirty = limit, true
  end
  join(b, ARGV[20], b.key and ARGV[22] or ARGV[21])
  if b.metered > 0 and b.budget_left < 1 then
    open(b, 'budget', hinted(math.max(reset, b.budget_reset) - now))
  end
end

-- probed ends the probe that this was.
local function probed(b)
  took_part(b)
  if outcome == 'success' then
    close(b, 'success')
    if ARGV[17] ~= '' and b == owner then
      write(b) -- what follows may open it again
      budget(b)
    end
  elseif outcome == 'limited' and (b == owner or scope == '') then
    seen() -- sent again, it would be a late answer of the next opening
    b.wasted = b.wasted + 1
    if threshold == 0 and b.cause == 'manual' then
      close(b, 'success') -- the operator's time is over, and answers do not open it
    elseif threshold == 0 then
      probe_failed(b, 0) -- opened by the answers of others: theirs decide
    else
      b.probes, b.last_failure = b.probes + 1, math.floor(now)
      raise(b)
      reopen(b, 'probe')
    end
  elseif outcome == 'failure' then
    probe_failed(b, 0)
  else -- it told nothing about this breaker's limit: the next may start at once
    clear_probe(b)
    b.dirty = true
  end
  return 'applied'
end

local function apply(b)
  local was_counted = redis.call('ZREM', b.inflight_key, id) == 1
  if b.forced == 'closed' then
    return 'applied'
  end
  if b.state == 'HALF_OPEN' and b.probe_token == id then
    return probed(b)
  end
  if b.state == 'CLOSED' then
    join(b, ARGV[20], b.key and ARGV[22] or ARGV[21])
    ended(b, was_counted)
    if permit < b.generation then
      return 'stale'
    end
    if outcome == 'limited' and b == owner then
      return limited(b)
    end
    if outcome == 'success' and b.failures > 0 then
      if seen() then
        return 'duplicate'
      end
      b.failures, b.dirty = 0, true
    end
    if ARGV[17] ~= '' and b == owner and outcome ~= 'limited' then
      budget(b)
    end
    return 'applied'
  end
  if outcome == 'limited' and b == owner then
    if seen() then
      return 'duplicate'
    end
    took_part(b)
    b.wasted, b.dirty = b.wasted + 1, true
    if b.state == 'OPEN' and hint > 0 and not until_reset(b) then
      b.open_until = math.max(b.open_until, math.ceil(now + hinted(hint)))
    end
  end
  return 'stale'
end

prepare()
local results = { [parent] = apply(parent) }
if child then
  results[child] = apply(child)
end
return finish(results[owner], parent, child)
