-- Reads what a list shows of a job in one step.
--
-- KEYS[1] task hash
-- ARGV[1] outline   ARGV[2...] other fields
-- returns their values; that of the message in place of an outline that is not there
local key = KEYS[1]
local values = redis.call('HMGET', key, unpack(ARGV))
values[1] = values[1] or redis.call('HGET', key, 'msg')
return values
