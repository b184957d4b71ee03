-- report: tells how a permitted call ended.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude
--       8   id of the permit; a probe's is its token
--       9   generation of a probe's permit, version of another's
--       10  "success", "limited" (the API said: rate limited) or "failure"
--       11  the API's hint in ms, 0 is none (or none that is trusted)
--       12  threshold: consecutive rate-limited answers that open
-- Returns result
--   "applied"    it was the current state's, and counted
--   "stale"      it was older than the current state; of those only a
--                rate-limited one tells something: a call wasted, a later end
--   "duplicate"  it had been counted before

local id, permit, outcome = ARGV[8], tonumber(ARGV[9]), ARGV[10]
local hint, threshold = tonumber(ARGV[11]), tonumber(ARGV[12])
local limited = outcome == 'limited'
local b = read_breaker()

if b.state == 'HALF_OPEN' and b.probe_token == id then
  if outcome == 'success' then
    close(b, 'success')
  elseif limited then
    first_time(id) -- sent again, it would be a late answer of the next opening
    b.probes, b.wasted, b.last_failure = b.probes + 1, b.wasted + 1, math.floor(now)
    if hint > 0 then
      open(b, 'hint', hinted(hint))
    else
      open(b, 'probe', cooldown(b))
    end
  else
    probe_failed(b, 0)
  end
  return finish(b, 'applied')
end

if b.state == 'CLOSED' then
  if permit < b.generation then
    return finish(b, 'stale')
  end
  if limited then
    if not first_time(id) then
      return finish(b, 'duplicate')
    end
    b.failures, b.last_failure = b.failures + 1, math.floor(now)
    b.probes = 0
    if hint > 0 then
      open(b, 'hint', hinted(hint))
    elseif b.failures >= threshold then
      open(b, 'threshold', cooldown(b))
    end
    b.dirty = true
  elseif outcome == 'success' and b.failures > 0 then
    if not first_time(id) then
      return finish(b, 'duplicate')
    end
    b.failures, b.dirty = 0, true
  end
  return finish(b, 'applied')
end

if limited then
  if not first_time(id) then
    return finish(b, 'duplicate')
  end
  b.wasted, b.dirty = b.wasted + 1, true
  if b.state == 'OPEN' and hint > 0 and not until_reset(b) then
    b.open_until = math.max(b.open_until, math.ceil(now + hinted(hint)))
  end
end
return finish(b, 'stale')
