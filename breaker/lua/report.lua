-- report: applies the outcome of a permitted call.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- ARGV  11  id of the permit; a probe's is its token
--       12  generation of the permit: the version that its instance knew
--       13  "success", "limited" (the API said: rate limited), "unauthorized" (it refused the
--           credentials), "failure", or "neutral" (the call said nothing about the API, or was
--           not made)
--       14  the API's hint in ms, 0 is none (or none that is trusted)
--       15  threshold: consecutive rate-limited answers that open; 0: no answer to this
--           instance opens
--       16  whose limit it is: "user", "global" or "" (the API did not say)
--       17  calls left as the API says, "" if it does not; 18 ms until the window ends;
--           19 calls of a whole window, 0 is unknown
--       20  sequence, 21 and 22 calls of this instance in flight that are not metered, of the
--           destination and of the key
--       23  why the credentials were refused, free text; 24 1 if only a person can renew them
--       25  what counts for an outage: "down" (5xx, no answer), "401" or "403"; '' for nothing
--       26  id of the job, '' is unknown: its calls count once; 27 how many calls open
-- Result
--   "applied"    it counts in the current state
--   "stale"      it is older than the last transition; a rate-limited one is counted as
--                wasted, and its hint extends OPEN
--   "duplicate"  it was counted before

local id, generation, outcome = ARGV[11], tonumber(ARGV[12]), ARGV[13]
local hint, threshold, scope = tonumber(ARGV[14]), tonumber(ARGV[15]), ARGV[16]
local left, reset_in, limit = tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[19])
local sequence, calls, key_calls = ARGV[20], ARGV[21], ARGV[22]

local parent, child = read_breakers()
local owner = (child and scope ~= 'global') and child or parent -- of the limit

local fresh -- whether this report counts for the first time
local function first_report()
  if fresh == nil then
    fresh = first_time(id)
  end
  return fresh
end
local answer = {
  hint = hint, threshold = threshold, first_time = first_report, reason = ARGV[23], permanent = tonumber(ARGV[24]),
  outage = ARGV[25], job = ARGV[26], outage_threshold = tonumber(ARGV[27]),
}
local outage = answer.outage

-- end_metered ends a metered call.
local function end_metered(b, metered)
  local current = generation >= b.generation
  if b.metered > 0 and not (left and b == owner) and outcome ~= 'neutral' and b.budget_left > 0 and
      (metered or current) and first_report() then
    spend(b)
  end
  if metered then
    b.dirty = true -- another call may start
    if b.ramp > 0 and outcome == 'success' and current then
      grow(b)
    end
  end
end

local function apply(b)
  local metered = redis.call('ZREM', b.inflight_key, id) == 1
  if b.forced == 'closed' then
    return 'applied'
  end
  local where = b.state == 'CLOSED' and 'CLOSED' or 'LATE'
  if b.state == 'HALF_OPEN' and b.probe_token == id then
    where = 'PROBE'
    took_part(b)
  elseif b.state == 'CLOSED' then
    join(b, sequence, b.key and key_calls or calls)
    end_metered(b, metered)
    if generation < b.generation then
      return 'stale'
    end
  end
  -- A limit concerns its owner's breaker; a probe's also that of the destination if the API
  -- did not say whose it is.
  local concerns = outcome
  if outcome == 'limited' and b ~= owner and not (where == 'PROBE' and scope == '') then
    concerns = 'neutral'
  elseif outcome == 'unauthorized' and b ~= owner then
    concerns = 'success' -- the destination is not at its limit
  elseif where ~= 'CLOSED' and b.outage ~= '' and (outage == 'down' or outage == b.outage) then
    concerns = 'outage'
  end
  b.counts, b.probed = where == 'CLOSED', where == 'PROBE'
  local rule = RULES[where][concerns]
  local result = rule and rule(b, answer) or where == 'LATE' and 'stale' or 'applied'
  if left and b == owner and b.state == 'CLOSED' and outcome ~= 'limited' and result == 'applied' then
    if b.event then
      write(b) -- the budget may open it again
    end
    note_budget(b, left, reset_in, limit)
    join(b, sequence, b.key and key_calls or calls)
  end
  return result
end

prepare()
local results = { [parent] = apply(parent) }
if child then
  results[child] = apply(child)
end
local function counts(b) return b and b.counts and b.state == 'CLOSED' end
if outage == '' then
  for _, b in ipairs({ parent, child }) do
    if counts(b) and b.streak > 0 and outcome ~= 'failure' and outcome ~= 'neutral' and first_report() then
      clear_streak(b)
      b.dirty = true
    end
  end
elseif first_report() then
  -- 5xx is of the destination. A 401 or 403 may be of the key alone, until other keys get it too.
  local of_key = child and outage ~= 'down'
  if of_key and counts(child) and count_outage(child, answer) then
    parent.dirty = parent.dirty or parent.streak > 0
    clear_streak(parent)
  elseif counts(parent) and not (of_key and child.probed) then
    count_outage(parent, answer)
  end
end
return finish(results[owner], parent, child)
