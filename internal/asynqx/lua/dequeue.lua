-- Takes up to ARGV[3] jobs from the head of the queue into a worker's hands.
-- Stands in for asynq's dequeueCmd and does the same writes for each job.
--
-- KEYS[1] pending   KEYS[2] paused   KEYS[3] active   KEYS[4] lease
-- ARGV[1] queue     ARGV[2] lease expiry, unix seconds
-- ARGV[3] how many jobs at most        ARGV[4] worker
-- ARGV[5] the run: a name for this fetch that no other has, so that what comes
--         of it later can be told from what comes of an earlier or later one
-- returns {how many ids were dropped, job, ...}, each job as {id, msg, attempt,
--   reschedules, crashes, expires_at, ms until then (nil = it never expires)}
--
-- Ids whose job is not pending any more (it was cancelled, paused, expired, or
-- completed by a worker that had outlived its lease) are dropped here, and jobs
-- whose time is over end here.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return { 0 }
end
local jobs, active, leases = { 0 }, {}, {}
-- Where nothing but ids to drop was found, look further, though not for ever:
-- there can be many of them together.
local rounds, gone = 0, 0
repeat
  rounds = rounds + 1
  local ids = redis.call('RPOP', KEYS[1], ARGV[3])
  for _, id in ipairs(ids or {}) do
    local key = task(id)
    local f = redis.call('HMGET', key, 'msg', 'state', 'attempt', 'reschedules', 'crashes', 'expires_at')
    if not f[1] or f[2] ~= 'pending' then
      gone = gone + 1
      if f[2] then
        redis.call('HDEL', key, 'ghost')
      end
    elseif f[6] and tonumber(f[6]) <= now then
      expire(id, key, 'pending')
      jobs[1] = jobs[1] + 1
    else
      redis.call('HSET', key, 'state', 'active', 'started_at', now_ms, 'by', ARGV[4], 'run', ARGV[5] or '')
      active[#active + 1] = id
      leases[#leases + 1] = ARGV[2]
      leases[#leases + 1] = id
      jobs[#jobs + 1] = { id, f[1], f[3], f[4], f[5], f[6], f[6] and int(tonumber(f[6]) - now) }
    end
  end
until not ids or #active > 0 or rounds * ARGV[3] >= 1000 or jobs[1] >= 100
if #active > 0 then
  redis.call('LPUSH', KEYS[3], unpack(active))
  redis.call('ZADD', KEYS[4], unpack(leases))
end
dropped(gone)
jobs[1] = jobs[1] + gone
return jobs
