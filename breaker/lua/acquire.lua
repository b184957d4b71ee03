-- acquire: asks for a permit, under the destination and under the key if there is one. An
-- OPEN breaker whose time has come becomes HALF_OPEN; in HALF_OPEN one caller of the whole
-- fleet gets the probe's lease. A CLOSED breaker meters the call in slow start and while the
-- budget is low. Everything is granted or nothing.
--
-- KEYS, ARGV 1…10 and what is returned: arguments.lua
-- ARGV  11  token of the permit; asking again with it answers the same
--       12  length of the lease, ms
--       13  sequence, 14 and 15 calls of this instance in flight that are not metered, of the
--           destination and of the key
--       16  µs between two calls by the configured rate ('' is none), 17 burst
--       18  '1' for a permit under the key only: the token has the destination's
-- Result
--   "closed"   no lease is needed; what is added is "rate" if the rate has counted it
--   "granted"  what is added says what: "probe" and "counted" for the destination,
--              "key-probe" and "key-counted" for the key, "rate"
--   "denied"   by the name; what is added is why (open, probe, slow_start, budget or rate) and
--              for how many ms asking again is of no use (0 is unknown)

local token, lease = ARGV[11], tonumber(ARGV[12])
local sequence, calls, key_calls = ARGV[13], ARGV[14], ARGV[15]
local interval, burst, key_only = ARGV[16], ARGV[17], ARGV[18] == '1'

-- ask returns the reason and the duration of a refusal; or nil, the name of what the call
-- takes, and a function that takes it; or nothing.
local function ask(b)
  if b.forced == 'closed' then
    return nil
  end
  if b.state == 'CLOSED' then
    join(b, sequence, b.key and key_calls or calls)
    if redis.call('ZSCORE', b.inflight_key, token) then
      return nil, 'counted', function() end
    end
    local why, wait = refusal(b)
    if why then
      return why, wait
    end
    if b.ramp == 0 and b.metered == 0 then
      return nil
    end
    return nil, 'counted', function() meter(b, token, lease) end
  end
  if b.state == 'OPEN' then
    if not cooled(b) then
      return 'open', until_reset(b) and 0 or math.ceil(b.open_until - now)
    end
    half_open(b)
  end
  if b.probe_token == token then
    return nil, 'probe', function() end
  end
  if b.probe_token ~= '' then
    if now < b.probe_until then
      return 'probe', math.ceil(b.probe_until - now)
    end
    retry_probe(b, b.probe_until) -- its process has died, or hangs
  end
  if now < b.probe_after then
    return 'probe', math.ceil(b.probe_after - now)
  end
  return nil, 'probe', function() start_probe(b, token, lease) end
end

local parent, child = read_breakers()
local flags, takes = {}, {}
local function need(name, prefix, why, wait, take)
  if why then
    return finish('denied', parent, child, name, why .. ' ' .. int(wait))
  end
  if wait then
    flags[#flags + 1] = prefix .. wait
    takes[#takes + 1] = take
  end
end

local denied = nil
if not key_only then
  denied = need(parent.name, '', ask(parent))
end
if not denied and child then
  denied = need(child.name, 'key-', ask(child))
end
if not denied and interval ~= '' and not key_only then
  denied = need(DESTINATION, '', ask_rate(interval .. ' ' .. burst))
end
if denied then
  return denied
end
for _, take in ipairs(takes) do
  take()
end
local all = table.concat(flags, ' ')
return finish((all == '' or all == 'rate') and 'closed' or 'granted', parent, child, '', all)
