-- Lists jobs whose lease has expired, and has been for a while: their worker has died.
--
-- KEYS[1] lease
-- ARGV[1] queue   ARGV[2] for how long, in ms
-- ARGV[3] how many to pass over   ARGV[4] how many to list at most
-- returns per job: id, the run that took it, message
local jobs = {}
local before = string.format('%.3f', (now - tonumber(ARGV[2])) / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', ARGV[3], ARGV[4])) do
  local f = redis.call('HMGET', task(id), 'run', 'msg')
  jobs[#jobs + 1] = id
  jobs[#jobs + 1] = f[1] or ''
  jobs[#jobs + 1] = f[2] or ''
end
return jobs
