-- Checks the entries of a sorted set of ids and removes those whose job is gone or, by its
-- record, in another place. A wait that ends later than its length from now, because the clock
-- went back, begins anew.
--
-- KEYS[1] pending
-- ARGV[4] the set   ARGV[5] states of its jobs, separated by spaces ('' = any)
-- ARGV[6] cursor    ARGV[7] how many at most, about
-- returns {cursor to go on with ('0' = that was all), how many were looked at, found}
local set, want, cursor, max = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local prefix = ours .. 'deferred:'
local by_breaker = string.sub(set, 1, #prefix) == prefix

local function belongs(state, reason)
  return (want == '' or string.find(' ' .. want .. ' ', ' ' .. state .. ' ', 1, true))
    and (not by_breaker or deferred_of(reason) == set)
end

local r = redis.call('ZSCAN', set, cursor, 'COUNT', max)
for i = 1, #r[2], 2 do
  local id = r[2][i]
  local f = redis.call('HMGET', task(id), 'state', 'reason', 'wait')
  local state = f[1]
  if not state or not belongs(state, f[2]) then
    report(state and 'entry_stale' or 'entry_without_job', id)
    if not dry then
      redis.call('ZREM', set, id)
    end
  elseif set == ours .. 'due' and tonumber(r[2][i + 1]) > wait_end(tonumber(r[2][i + 1]), f[3]) then
    report('wait_ahead', id)
    if not dry then
      shorten_wait(id, task(id), state, tonumber(r[2][i + 1]), f[3])
    end
  end
end
return { r[1], #r[2] / 2, found }
