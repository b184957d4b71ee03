-- learned: stores what an instance has decided of a limit that it learns, see learn.lua.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- named
--   generation, step  of the record by which it decided
--   learner           State
--   fields of learn.lua, failures and ramp: those that have changed
--   wait, cause       to open for so many ms; raise: for the cooldown at least, and the next one is longer
-- Result
--   "learned"
--   "conflict"  the record has changed otherwise meanwhile: what was decided is dropped
local FIELDS = { 'learned_gap', 'learned_length', 'learned_cap', 'learned_careful', 'learned_enough', 'learned_calm', 'round_started',
  'round_anchor', 'round_used', 'round_total', 'round_paced', 'round_calm', 'refused_at', 'failures', 'ramp' }

prepare()
local parent, child = read_breakers()
local b = child or parent
if b.generation ~= number(named.generation) or b.learned_step ~= number(named.step) or b.learned_since == 0 or b.forced ~= '' or b.metered > 0 or
    number(named.wait) > 0 and (b.state == 'HALF_OPEN' and b.probe_token ~= '' or b.state == 'CLOSED' and b.failures == 0) then
  return finish('conflict', parent, child)
end
b.learner, b.learned_step, b.dirty = given('learner'), b.learned_step + 1, true
for _, field in ipairs(FIELDS) do
  if named[field] then
    b[field] = number(named[field])
  end
end
if named.ramp then
  b.ramp_ok = 0
end
if named.confirming then
  b.confirming, b.probe_token = number(named.confirming), ''
  if b.confirming > 0 then
    b.ramp, b.ramp_ok = 1, 0
  end
end
local wait = number(named.wait)
if wait > 0 then
  if given('raise') ~= '' then
    raise_level(b)
    wait = math.max(wait, cooldown(b))
  end
  open(b, given('cause'), wait)
end
return finish('learned', parent, child)
