-- Takes up to ARGV[3] jobs from the head of the queue into a worker's hands.
-- Stands in for asynq's dequeueCmd and does the same writes for each job.
--
-- KEYS[1] pending   KEYS[2] paused   KEYS[3] active   KEYS[4] lease
-- ARGV[1] lease expiry, unix seconds   ARGV[2] task key prefix
-- ARGV[3] how many jobs at most        ARGV[4] worker
-- ARGV[5] the run: a name for this fetch that no other has, so that what comes
--         of it later can be told from what comes of an earlier or later one
-- returns per job: {id, msg, attempt, reschedules, crashes, expires_at}
--
-- Ids whose hash is gone or is no longer pending (it was completed by a worker
-- that had outlived its lease) are dropped here.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return {}
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local jobs, active, leases = {}, {}, {}
-- Where nothing but ids to drop was found, look further, though not for ever:
-- there can be many of them together.
local rounds = 0
repeat
  rounds = rounds + 1
  local ids = redis.call('RPOP', KEYS[1], ARGV[3])
  for _, id in ipairs(ids or {}) do
    local key = ARGV[2] .. id
    local f = redis.call('HMGET', key, 'msg', 'state', 'attempt', 'reschedules', 'crashes', 'expires_at')
    if f[1] and f[2] == 'pending' then
      redis.call('HSET', key, 'state', 'active', 'started_at', now, 'by', ARGV[4],
        'run', ARGV[5] or '')
      active[#active + 1] = id
      leases[#leases + 1] = ARGV[1]
      leases[#leases + 1] = id
      jobs[#jobs + 1] = { id, f[1], f[3], f[4], f[5], f[6] }
    end
  end
until not ids or #jobs > 0 or rounds == 100
if #active > 0 then
  redis.call('LPUSH', KEYS[3], unpack(active))
  redis.call('ZADD', KEYS[4], unpack(leases))
end
return jobs
