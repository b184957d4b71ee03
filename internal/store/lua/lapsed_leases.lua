-- Lists jobs whose lease lapsed a while ago: their worker has died.
--
-- KEYS[1] lease
-- ARGV[1] queue   ARGV[2] for how long, in ms
-- ARGV[3] how many to pass over   ARGV[4] how many to list at most
-- returns per job: id, the run that fetched it, message
local lease_key = KEYS[1]
local for_ms, skip, limit = ARGV[2], ARGV[3], ARGV[4]
local jobs = {}
local before = string.format('%.3f', (now - tonumber(for_ms)) / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', lease_key, '-inf', before, 'LIMIT', skip, limit)) do
  local f = redis.call('HMGET', task(id), 'run', 'msg')
  jobs[#jobs + 1] = id
  jobs[#jobs + 1] = f[1] or ''
  jobs[#jobs + 1] = f[2] or ''
end
return jobs
