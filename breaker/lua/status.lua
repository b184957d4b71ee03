-- status: reads one breaker in full and does not change it.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- Result "status"; what is added are the windows of the declared limit that instances have
--   configured, or else by which one asked last, as in rate.lua: "name state name state …"; '' is
--   none. Behind a tab are the destination's named limits, as :limits

local parent, child = read_breakers()

-- text is the breaker's record with its metered calls in flight and its cap.
local function text(b)
  local most = number(string.match(caps, b.key and '%d+$' or '^%d+'))
  if b.learned_cap > 0 and (most == 0 or b.learned_cap < most) then
    most = b.learned_cap
  end
  local reserve = redis.call('HGET', NOTCLOSED, RESERVE)
  if most == 0 and b.ramp == 0 and b.metered == 0 and not reserve then
    return record(b)
  end
  local calls = redis.call('ZCOUNT', b.inflight_key, '(' .. int(math.floor(now)), '+inf')
  return string.sub(record(b), 1, -2) .. ',"in_flight":' .. int(calls) .. ',"cap":' .. int(most) .. ',"reserve":' .. cjson.encode(reserve or '') .. '}'
end
local limits = read_limits(child or parent)
local configured = redis.call('HGET', NOTCLOSED, child and KEY_RATES or RATES) or ''
local shown = limits[configured]
if not shown and configured ~= '' and windows(configured, '') then
  shown = begin(child or parent, configured, limits)
end
if not shown then
  for _, limit in pairs(limits) do
    if not shown or limit.asked > shown.asked then
      shown = limit
    end
  end
end
local added = {}
for _, w in ipairs(shown and shown.windows or {}) do
  added[#added + 1] = w.name .. ' ' .. state_of(w)
end
return table.concat({ 'status', int(now_us), int(version), '', table.concat(added, ' ') .. '\t' .. (redis.call('HGET', NOTCLOSED, LIMITS) or ''), text(parent), child and text(child) or '' }, '\n')
