-- Takes jobs of an API token from its quota: as many, from the first, as its rate and its backlog have room for. Before
-- that it takes ended jobs out of the backlog.
--
-- KEYS[1] its backlog: ZSET "<queue> <id>" → when the job was last known not to have ended, unix ms
-- KEYS[2] when its rate has all of its burst again, unix µs
-- ARGV[1] µs for a job by its rate, 0: no rate   ARGV[2] its burst   ARGV[3] the largest backlog, 0: any
-- ARGV[4] how many jobs are wanted   ARGV[5] how many checked jobs follow
-- ARGV[6...] three for each of these: member, its score as it was read, '1' if it has ended; then the members of the
--   wanted jobs, if the backlog is bounded
-- returns how many were taken, and the ms until the rate has room for the next (0: the backlog is full)
local backlog, rate = KEYS[1], KEYS[2]
local each, burst, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted, checked = tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = string.format('%.0f', math.floor(now / 1000))
for i = 6, 5 + 3 * checked, 3 do
  if redis.call('ZSCORE', backlog, ARGV[i]) == ARGV[i + 1] then -- else it was enqueued again
    if ARGV[i + 2] == '1' then
      redis.call('ZREM', backlog, ARGV[i])
    else
      redis.call('ZADD', backlog, now_ms, ARGV[i])
    end
  end
end
local taken, wait, full = wanted, 0, 0
if each > 0 then
  full = math.max(now, tonumber(redis.call('GET', rate) or '0'))
  taken = math.max(0, math.min(wanted, math.floor(burst - (full - now) / each)))
  if taken < wanted then
    wait = math.max(1, math.ceil((full + (taken + 1 - burst) * each - now) / 1000))
  end
end
if most > 0 then
  local size = redis.call('ZCARD', backlog)
  for i = 1, taken do
    local member = ARGV[5 + 3 * checked + i]
    if not redis.call('ZSCORE', backlog, member) then
      if size >= most then
        taken, wait = i - 1, 0
        break
      end
      size = size + 1
    end
    redis.call('ZADD', backlog, now_ms, member)
  end
  redis.call('EXPIRE', backlog, 90 * 86400)
end
if each > 0 and taken > 0 then
  full = full + taken * each
  redis.call('SET', rate, string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
end
return { taken, wait }
