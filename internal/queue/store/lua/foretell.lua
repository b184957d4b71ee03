-- Adds forecasts of jobs that wait to those in their records, for fetch.lua to compare; none within a second of another.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2...] per job: id, and in unix ms as of when, start, and its range, with spaces between
-- returns how many were written
local written = 0
for i = 2, #ARGV, 2 do
  local f = redis.call('HMGET', task(ARGV[i]), 'state', 'eta')
  local before = string.match(f[2] or '', '(%d+) %d+ %d+ %d+$')
  if (f[1] == 'pending' or f[1] == 'held') and string.match(ARGV[i + 1], '^%d+') - (before or 0) >= 1000 then
    redis.call('HSET', task(ARGV[i]), 'eta', (before and f[2] .. ' ' or '') .. ARGV[i + 1])
    written = written + 1
  end
end
return written
