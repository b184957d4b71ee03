-- release: gives the lease of a probe back that made no call, or whose call
-- was cancelled; the next probe may start at once. No transition.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude
--       8   token of the lease
-- Returns result
--   "released"
--   "stale"     the lease is not this token's (any more)

local b = read_breaker()
if b.state == 'HALF_OPEN' and b.probe_token == ARGV[8] then
  clear_probe(b)
  b.dirty = true
  return finish(b, 'released')
end
return finish(b, 'stale')
