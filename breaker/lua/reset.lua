-- reset: an operator closes the breaker, whatever state it is in. Reports of
-- calls that started before do not count any more.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude (5…7 unused)
-- Returns result
--   "reset"
--   "unchanged"  it was CLOSED without failures

local b = read_breaker()
if b.state == 'CLOSED' and b.failures == 0 then
  return finish(b, 'unchanged')
end
close(b, 'reset')
return finish(b, 'reset')
