-- Writes the forecasts of jobs that wait into their records, for fetch.lua to compare.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2...] per job: id, and in unix ms as of when, start, and its range, with spaces between
-- returns how many were written
local written = 0
for i = 2, #ARGV, 2 do
  local state = redis.call('HGET', task(ARGV[i]), 'state')
  if state == 'pending' or state == 'held' then
    written = written + redis.call('HSETNX', task(ARGV[i]), 'eta', ARGV[i + 1])
  end
end
return written
