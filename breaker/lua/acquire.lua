-- acquire: asks for the leave to call. An OPEN breaker whose time has come
-- becomes HALF_OPEN; in HALF_OPEN one caller of the whole fleet gets a lease.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude
--       8   token of the caller; asking again with it answers the same
--       9   length of the lease, ms
-- Returns result
--   "closed"   no lease is needed
--   "granted"  the caller holds the lease, until the record's probe_until
--   "denied"   OPEN, or another caller probes, or it is too early for a probe

local token, lease = ARGV[8], tonumber(ARGV[9])
local b = read_breaker()

if b.state == 'CLOSED' then
  return finish(b, 'closed')
end

if b.state == 'OPEN' then
  if not cooled(b) then
    return finish(b, 'denied')
  end
  half_open(b)
end

if b.probe_token ~= '' then
  if b.probe_token == token then
    return finish(b, 'granted')
  end
  if now < b.probe_until then
    return finish(b, 'denied')
  end
  probe_failed(b, b.probe_until) -- the prober died, or hangs
end
if now < b.probe_after then
  return finish(b, 'denied')
end

b.probe_token, b.probe_by = token, WHO
b.probe_started, b.probe_until, b.probe_after = math.floor(now), math.ceil(now + lease), 0
b.dirty = true
return finish(b, 'granted')
