-- snapshot: what an instance mirrors, read once per second by each: one HMGET
-- while nothing has changed since its last read.
--
-- KEYS, ARGV 1…7: arguments.lua
-- ARGV  8  version up to which the instance knows all, '0' for nothing
--       9  '1' if it wants to know the time: it waits for something
--       10  how many breakers at most
-- Returns {"snapshot", now in µs (0 if it does not matter), version, floor,
--   last transition, capacity, origin, name, revision, record ('' = plainly CLOSED), …},
--   the breakers changed since, in the order of their revisions

local synced, timed, limit = ARGV[8], ARGV[9] == '1', ARGV[10]

local about = redis.call('HMGET', NOTCLOSED, VERSION, FLOOR, TRANSITION, CAPACITY, ORIGIN)
local changed = number(about[1]) ~= tonumber(synced)
now_us = 0
if changed or timed then
  read_clock()
end
local out = { 'snapshot', int(now_us), int(number(about[1])), int(number(about[2])), int(number(about[3])), int(number(about[4])),
  about[5] or '' }
if not changed then
  return out
end
local names = redis.call('ZRANGEBYSCORE', CHANGES, '(' .. synced, '+inf', 'WITHSCORES', 'LIMIT', '0', limit)
local asked = {}
for i = 1, #names, 2 do
  asked[#asked + 1] = names[i]
end
if #asked > 0 then
  local records = redis.call('HMGET', NOTCLOSED, unpack(asked))
  for i, name in ipairs(asked) do
    out[#out + 1] = name
    out[#out + 1] = int(number(names[2 * i]))
    out[#out + 1] = records[i] or ''
  end
end
return out
