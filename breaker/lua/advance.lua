-- advance: moves an OPEN breaker whose time has come to HALF_OPEN without
-- taking the lease. It also writes what reading found to be wrong: waits made
-- too long by a clock that went backwards, and a lost hash.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude
-- Returns result
--   "advanced"   it is HALF_OPEN now, by this call
--   "unchanged"  it is not OPEN, or its time has not come

local b = read_breaker()
if cooled(b) then
  half_open(b)
  return finish(b, 'advanced')
end
return finish(b, 'unchanged')
