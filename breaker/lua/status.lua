-- status: reads one breaker in full and changes nothing.
--
-- KEYS  as in the prelude
-- ARGV  1…7 as in the prelude (4…7 unused)
-- Returns result "status"

return reply(read_breaker(), 'status')
