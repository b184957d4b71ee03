-- report: applies the outcome of a permitted call.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- named
--   permit      its id; a probe's is its token
--   generation  of the permit: the version that its instance knew
--   outcome     "success", "limited" (the API said: rate limited), "unauthorized" (it refused the
--               credentials), "failure", or "neutral" (the call said nothing about the API, or
--               was not made)
--   hint        the API's hint in ms, if there is one that is trusted
--   doubt       the refusal may be the call's own: no limit is learned from it; it is, if neutral
--   threshold   consecutive rate-limited answers that open; none: no answer to this instance opens
--   scope       whose limit it is: "user" or "global"; none: the API did not say
--   learn       limits are learned of which the API says nothing; sent: when the call began, µs
--   left        calls left, if the API says that; reset_in: ms until the window ends; limit:
--               calls of a whole window, if known; windows: each of several as "id left
--               reset_in limit", of which left is the fewest
--   cap, key_cap  configured calls in flight in the fleet, and of the key
--   sequence, calls, key_calls  calls of this instance in flight that are not metered, of the
--               destination and of the key
--   reason      why the credentials were refused, free text; permanent: only a person can
--               renew them; credentials: identifies them; retry: ms
--               after which to ask again for credentials that could not be obtained;
--               uncalled: there were none, and no call was made
--   rates, key_rates, cost, key_cost, at  as in release.lua, of a call that was not made, and of one
--               that has cost true_cost
--   keep        the call goes on, and its slot stays taken until it is released
--   next, lease  token of the key's next call, which gets the slot of this one, and its lease, ms
--   outage      what counts for an outage: "down" (5xx, no answer), "401" or "403"; busy: 503; job: its id
--               if known, calls of one job count once; outage_threshold: how many calls open
-- Result
--   "applied"    it counts in the current state
--   "stale"      it is older than the last transition; a rate-limited one is counted as
--                wasted, and its hint extends OPEN
--   "duplicate"  it was counted before
-- What is added is "slot" and "key-slot" if this instance waits for a slot that is free now, "next" if the
-- next call has one, and what is to be decided of a limit that is learned, see learn.lua.

local id, generation, outcome, scope = given('permit'), number(named.generation), given('outcome'), given('scope')
local left, reset_in, limit = tonumber(named.left), number(named.reset_in), number(named.limit)

local parent, child = read_breakers()

local fresh -- whether this report counts for the first time
local function first_report()
  if fresh == nil then
    fresh = first_time(id)
  end
  return fresh
end
local answer = {
  permit = id, hint = number(named.hint), threshold = number(named.threshold), first_time = first_report,
  reason = given('reason'), permanent = number(named.permanent), credentials = given('credentials'), retry = number(named.retry),
  uncalled = number(named.uncalled) > 0,
  outage = given('outage'), job = given('job'), outage_threshold = number(named.outage_threshold),
  busy = number(named.busy) > 0, sent = number(named.sent), doubt = number(named.doubt) > 0,
}
local outage = answer.outage
local shared = child and outcome == 'limited' and scope == '' and generation >= parent.generation and of_all_keys(parent, child, answer)
local owner = (child and scope ~= 'global' and not shared) and child or parent -- of the limit

-- end_metered ends a metered call.
local function end_metered(b, metered, ramp_counts)
  local current = generation >= b.generation
  if b.metered > 0 and not (left and b == owner) and outcome ~= 'neutral' and not answer.uncalled and b.budget_left > 0 and
      (metered or current) and first_report() then
    spend(b)
  end
  if metered then
    b.dirty = b.dirty or limits(b) -- another call may start
    if b.ramp > 0 and outcome == 'success' and current and ramp_counts then
      grow(b)
    elseif pace.on(b) and outcome == 'failure' and not answer.busy then
      pace.failed(b)
    end
  end
end

local function apply(b)
  local metered
  if given('keep') ~= '' or b.key and named.next then
    metered = redis.call('ZSCORE', b.inflight_key, id)
  else
    metered = end_call(b, id)
  end
  if b.forced == 'closed' then
    return 'applied'
  end
  if outcome == 'neutral' and answer.doubt and learn.on(b) then
    learn.forget(b)
  end
  local where = b.state == 'CLOSED' and 'CLOSED' or 'LATE'
  if b.state == 'HALF_OPEN' and b.probe_token == id then
    where = 'PROBE'
    took_part(b)
  elseif b.state == 'CLOSED' then
    join(b)
    local grows = true
    if outcome == 'success' and generation >= b.generation and learn.on(b) and (metered or first_report()) then
      grows = learn.accepted(b, id, answer.sent)
    end
    end_metered(b, metered, grows)
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
    concerns = answer.uncalled and 'neutral' or 'success' -- the destination is not at its limit
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
    note_budget(b, left, reset_in, limit, given('windows'))
    join(b)
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
    local goes_on = outcome == 'failure' or outcome == 'neutral' or outcome == 'limited' and b.streak_of == '429' and scope ~= 'global' or
      b.confirming > RAMP_LIMIT and b.probe_token ~= id -- it began before the guess
    if counts(b) and b.streak > 0 and not goes_on and not answer.uncalled and first_report() then
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
if (answer.uncalled or named.true_cost) and first_report() then
  correct_taken(parent, child, answer.uncalled and 0 or number(named.true_cost))
end
-- hand_on gives the key's slot of the call to its next one, and says so. While something else limits calls,
-- the slot is free instead.
function answer.hand_on(next)
  local inflight = child.inflight_key
  if not redis.call('ZSCORE', inflight, next) then -- else this report was resent
    if child.state ~= 'CLOSED' or parent.state ~= 'CLOSED' or learn.on(child) or learn.on(parent) or limits(child) or limits(parent) or
        not redis.call('ZSCORE', inflight, id) or in_flight(child) > cap(child) then
      end_call(child, id)
      return ''
    end
    redis.call('ZREM', inflight, id)
    meter(child, next, number(named.lease))
  end
  return 'next '
end
return finish(results[owner], parent, child, '',
  (child and named.next and answer.hand_on(named.next) or '') .. woken_here(parent, child) .. ' ' .. learn.told(parent, child))
