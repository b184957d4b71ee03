-- Extends the leases of jobs in flight. A lapsed one is extended too, until the job is
-- recovered.
--
-- KEYS[1] lease   KEYS[2...] the task hash of each job
-- ARGV[1] queue   ARGV[2] length of a lease in ms
-- ARGV[3...] per job: id, the run that fetched it
-- returns how many leases were extended
local lease_key = KEYS[1]
local lease_ms = ARGV[2]
allow_when_full()
local n, leases, lease = 0, {}, lease_end(lease_ms)
for i = 2, #KEYS do
  local id, run = ARGV[2 * i - 1], ARGV[2 * i]
  if redis.call('HGET', KEYS[i], 'run') == run and redis.call('ZSCORE', lease_key, id) then
    leases[#leases + 1] = lease
    leases[#leases + 1] = id
    n = n + 1
  end
end
if n > 0 then
  redis.call('ZADD', lease_key, 'XX', unpack(leases))
end
return n
