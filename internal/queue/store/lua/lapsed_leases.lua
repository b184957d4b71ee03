-- Lists jobs whose lease lapsed a while ago: their worker has died, or the clock has gone
-- forward. Shortens leases that the clock, when it went back, has made longer.
--
-- KEYS[1] lease
-- ARGV[1] queue   ARGV[2] for how long, in ms
-- ARGV[3] how many to pass over   ARGV[4] how many to list at most
-- ARGV[5] length of a lease in ms
-- returns per job: id, the run that fetched it, when its lease ended, message
local lease_key = KEYS[1]
local for_ms, skip, limit, lease_ms = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if skip == '0' then
  allow_when_full()
  shorten_leases(lease_ms)
end
local jobs = {}
local before = string.format('%.3f', (now - tonumber(for_ms)) / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', lease_key, '-inf', before, 'LIMIT', skip, limit)) do
  local f = redis.call('HMGET', task(id), 'run', 'msg')
  jobs[#jobs + 1] = id
  jobs[#jobs + 1] = f[1] or ''
  jobs[#jobs + 1] = redis.call('ZSCORE', lease_key, id)
  jobs[#jobs + 1] = f[2] or ''
end
return jobs
