-- Acquires, extends or releases a lease.
--
-- KEYS[1] the lease
-- ARGV[1] holder   ARGV[2] ms from now ('0' = release)
-- ARGV[3] '1' if only the present holder may get it
-- returns 1 if the caller has it, or had it until now
--
-- The value is the holder and, behind a line feed, the length in ms: a lease that lasts longer
-- was given before the clock went back, and is shortened to its length.
local holder, ms = string.match(redis.call('GET', KEYS[1]) or '', '^([^\n]*)\n?(%d*)$')
if holder == '' then
  holder = nil
elseif ms ~= '' and redis.call('PTTL', KEYS[1]) > tonumber(ms) then
  redis.call('PEXPIRE', KEYS[1], ms)
end
if holder ~= ARGV[1] and (holder or ARGV[3] == '1') then
  return 0
end
-- A full Redis takes the rest of a script that began by freeing memory.
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1] .. '\n' .. ARGV[2], 'PX', ARGV[2])
end
return 1
