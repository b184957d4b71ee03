-- rescheduled: counts jobs that were deferred because of an incident, also one
-- that is over.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- ARGV  8  id of the incident   9  how many
-- Result
--   "counted"
--   "unknown"  there is no such incident (any more)

local id, count = ARGV[8], tonumber(ARGV[9])

prepare()
local parent, child = read_breakers()
local b = child or parent
if b.incident == id then
  b.rescheduled = b.rescheduled + count
  redis.call('HSET', b.hash_key, 'rescheduled', int(b.rescheduled), 'step', int(b.step + 1))
  if redis.call('HEXISTS', NOTCLOSED, b.name) == 1 then
    redis.call('HSET', NOTCLOSED, b.name, record(b))
  end
  return finish('counted', parent, child)
end
for i, entry in ipairs(redis.call('LRANGE', b.incidents_key, 0, 9)) do
  local known = cjson.decode(entry)
  if known.id == id then
    known.rescheduled = (known.rescheduled or 0) + count
    redis.call('LSET', b.incidents_key, i - 1, cjson.encode(known))
    return finish('counted', parent, child)
  end
end
return finish('unknown', parent, child)
