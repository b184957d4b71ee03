-- rescheduled: counts jobs that were put off because of an incident, also one
-- that is over.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude
--       11  id of the incident   12  how many
-- Returns result
--   "counted"
--   "unknown"  there is no such incident (any more)

prepare()
local parent, child = read_breakers()
local b = child or parent
if b.incident == ARGV[11] then
  b.rescheduled = b.rescheduled + tonumber(ARGV[12])
  redis.call('HSET', b.hash_key, 'rescheduled', int(b.rescheduled))
  if redis.call('HEXISTS', NOTCLOSED, b.name) == 1 then
    redis.call('HSET', NOTCLOSED, b.name, record(b))
  end
  return finish('counted', parent, child)
end
for i, entry in ipairs(redis.call('LRANGE', b.incidents_key, 0, 9)) do
  local known = cjson.decode(entry)
  if known.id == ARGV[11] then
    known.rescheduled = known.rescheduled + tonumber(ARGV[12])
    redis.call('LSET', b.incidents_key, i - 1, cjson.encode(known))
    return finish('counted', parent, child)
  end
end
return finish('unknown', parent, child)
