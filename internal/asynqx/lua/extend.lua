-- Extends the leases of jobs in a worker's hands. A lease that has lapsed is extended
-- too, as long as nobody has recovered the job.
--
-- KEYS[1] lease   KEYS[2...] the task hash of each job
-- ARGV[1] queue   ARGV[2] length of a lease in ms
-- ARGV[3...] per job: id, the run that took it
-- returns how many leases were extended
also_when_full()
local n, leases, lease = 0, {}, lease_end(ARGV[2])
for i = 2, #KEYS do
  local id, run = ARGV[2 * i - 1], ARGV[2 * i]
  if redis.call('HGET', KEYS[i], 'run') == run and redis.call('ZSCORE', KEYS[1], id) then
    leases[#leases + 1] = lease
    leases[#leases + 1] = id
    n = n + 1
  end
end
if n > 0 then
  redis.call('ZADD', KEYS[1], 'XX', unpack(leases))
end
return n
