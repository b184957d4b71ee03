-- acquire: asks for the leave to call, under the destination and under the key
-- if there is one. An OPEN breaker whose time has come becomes HALF_OPEN; in
-- HALF_OPEN one caller of the whole fleet gets a lease. A CLOSED breaker counts
-- the call where it must: in slow start, and when the API has little left.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude
--       11  token of the caller; asking again with it answers the same
--       12  length of the lease, ms
--       13  sequence, 14 and 15 calls of this instance in flight that are not
--           counted, of the destination and of the key
--       16  µs between two calls by the configured rate ('' is none), 17 burst
--       18  '1' for a leave under the key only: the token has the destination's
-- Returns result
--   "closed"   no lease is needed; what is added is "rate" if the rate has counted it
--   "granted"  what is added says of what: "probe" and "counted" are the
--              destination's, "key-probe" and "key-counted" the key's, "rate"
--   "denied"   by the name; what is added is why (open, probe, slow_start, budget
--              or rate) and for how many ms it is no use to ask again (0 is unknown)

local RATE_KEPT = 60000000 -- µs that a rate by which no worker asks any more is kept

local token, lease = ARGV[11], tonumber(ARGV[12])
local parent, child = read_breakers()
local until_ = math.ceil(now + lease)

-- ask returns why the breaker lets nothing through and for how long, or nil, the
-- name of what must be taken, and the function that takes it.
local function ask(b)
  if b.forced == 'closed' then
    return nil
  end
  if b.state == 'CLOSED' then
    join(b, ARGV[13], b.key and ARGV[15] or ARGV[14])
    if redis.call('ZSCORE', b.inflight_key, token) then
      return nil, 'counted', function() end
    end
    local why, wait = room(b)
    if why then
      return why, wait
    end
    if b.ramp == 0 and b.metered == 0 then
      return nil
    end
    return nil, 'counted', function()
      prepare()
      redis.call('ZADD', b.inflight_key, int(until_), token)
      redis.call('PEXPIRE', b.inflight_key, int(math.ceil(lease + 60000)))
    end
  end
  if b.state == 'OPEN' then
    if not cooled(b) then
      return 'open', until_reset(b) and 0 or math.ceil(b.open_until - now)
    end
    half_open(b)
  end
  if b.probe_token ~= '' then
    if b.probe_token == token then
      return nil, 'probe', function() end
    end
    if now < b.probe_until then
      return 'probe', math.ceil(b.probe_until - now)
    end
    probe_failed(b, b.probe_until) -- the prober died, or hangs
  end
  if now < b.probe_after then
    return 'probe', math.ceil(b.probe_after - now)
  end
  return nil, 'probe', function()
    b.probe_token, b.probe_by = token, WHO
    b.probe_started, b.probe_until, b.probe_after = math.floor(now), until_, 0
    b.dirty = true
    took_part(b)
  end
end

-- rate is the generic cell rate algorithm: burst calls at once, then one per
-- interval. While workers disagree on the rate, each of their rates counts all calls and
-- lets through its own workers' calls alone: together they keep the largest.
local function rate()
  if ARGV[16] == '' or ARGV[18] == '1' then
    return nil
  end
  local own = ARGV[16] .. ' ' .. ARGV[17]
  local rates, used = { [own] = false }, 0 -- rate -> arrival time; calls that another one counts now
  each_rate(function(name, interval, burst, at)
    rates[name] = at
    used = math.max(used, math.min((at - now_us) / interval, burst))
  end)
  local interval, burst = rate_of(own)
  local function write()
    prepare()
    local longest = 0
    for name, at in pairs(rates) do
      if at < now_us - RATE_KEPT then
        redis.call('HDEL', KEYS[8], name)
      else
        redis.call('HSET', KEYS[8], name, int(math.floor(at)))
        longest = math.max(longest, at - now_us)
      end
    end
    redis.call('PEXPIRE', KEYS[8], int(math.ceil(longest / 1000) + 1000))
  end
  if not rates[own] then
    rates[own] = now_us + math.min(used, burst) * interval
    if used > 0 then
      write() -- or it would begin anew each time
    end
  end
  rates[own] = math.max(rates[own], now_us)
  local early = rates[own] - (burst - 1) * interval - now_us
  if early > 0 then
    return 'rate', math.ceil(early / 1000)
  end
  return nil, 'rate', function()
    for name, at in pairs(rates) do
      if at >= now_us - RATE_KEPT then
        local every, at_once = rate_of(name)
        rates[name] = math.min(math.max(at, now_us) + every, now_us + at_once * every)
      end
    end
    write()
  end
end

local flags, takes = {}, {}
local function need(b, prefix)
  local why, wait, take
  if b then
    why, wait, take = ask(b)
  else
    why, wait, take = rate()
  end
  if why then
    return finish('denied', parent, child, b and b.name or DESTINATION, why .. ' ' .. int(wait))
  end
  if wait then
    flags[#flags + 1] = prefix .. wait
    takes[#takes + 1] = take
  end
end

local denied = nil
if ARGV[18] ~= '1' then
  denied = need(parent, '')
end
if not denied and child then
  denied = need(child, 'key-')
end
if not denied then
  denied = need(nil, '')
end
if denied then
  return denied
end
for _, take in ipairs(takes) do
  take()
end
local all = table.concat(flags, ' ')
if all == '' or all == 'rate' then
  return finish('closed', parent, child, '', all)
end
return finish('granted', parent, child, '', all)
