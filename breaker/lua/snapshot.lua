-- snapshot: what an instance mirrors, read once per second by each: one HMGET
-- while the breaker is CLOSED without failures, and TIME otherwise.
--
-- KEYS  as in the prelude (only 2 is read)
-- ARGV  1…7 as in the prelude (4…7 unused)
-- Returns result "snapshot"; now is 0 and the record empty when the breaker is
-- not listed, that is CLOSED without failures

local listed = redis.call('HMGET', NOTCLOSED, VERSION, NAME)
local version = int(number(listed[1]))
if not listed[2] then
  return { 'snapshot', '0', version, '' }
end
read_clock()
return { 'snapshot', int(now_us), version, listed[2] }
