-- clock: the time, and what is stored where it went back.

local function read_clock()
  if CLOCK ~= '' then
    now_us = tonumber(CLOCK)
  else
    local t = redis.call('TIME')
    now_us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  end
  now = now_us / 1000
end

-- repair_instants restores the length of every wait after the clock went back.
local function repair_instants(b)
  local back = b.updated_at - now
  for _, field in ipairs({ 'round_started', 'round_anchor', 'refused_at' }) do -- µs, also stored without updated_at
    local at = b[field]
    b[field] = math.min(at > 0 and back > 0 and math.max(1, math.ceil(at - 1000 * back)) or at, now_us)
  end
  if b.updated_at <= now or plain(b) and b.guess_after <= now then
    return
  end
  for _, field in ipairs({ 'open_until', 'probe_started', 'probe_until', 'probe_after', 'metered', 'budget_reset', 'forced_until',
    'pace_from', 'learned_since', 'guess_since', 'guess_after', 'hinted_at', 'probe_due' }) do
    if b[field] > 0 then
      b[field] = math.max(1, math.ceil(b[field] - back))
    end
  end
  b.windows = '' -- the one that binds stays, and the others are announced again
  if back > 1000 then
    redis.call('DEL', b.inflight_key) -- their leases would end that much later
  end
  b.updated_at, b.dirty = math.floor(now), true
end
