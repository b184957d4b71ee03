-- Reads a part of the pending list, from its back to its head. Ids may enter at the back
-- meanwhile, so the id read last is the position to go on from. The id of a job that is not
-- pending is a tombstone, and the job's record must have the field.
--
-- KEYS[1] pending
-- ARGV[4] index to start at   ARGV[5] how many at most
-- ARGV[6] the id before it, '' = none
-- returns {1 if nothing was passed over or read twice, index to go on at,
--   the count of tombstones, per id 'p' pending or 'g' tombstone in one text, ids,
--   found}
local pending_key = KEYS[1]
local start, n, anchor = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local exact = 1
if anchor ~= '' and redis.call('LINDEX', pending_key, start - 1) ~= anchor then
  exact = 0
  for i, id in ipairs(redis.call('LRANGE', pending_key, start, start + 999)) do
    if id == anchor then
      start, exact = start + i, 1
      break
    end
  end
  if exact == 0 then
    -- Ids were removed: rather read some twice.
    start = math.max(0, start - 100)
  end
end
local ids = redis.call('LRANGE', pending_key, start, start + n - 1)
local kinds = {}
for i, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'state', 'tombstone', 'place_of')
  kinds[i] = f[1] == 'pending' and 'p' or 'g'
  if f[1] and f[1] ~= 'pending' and not f[2] and not f[3] then -- one with place_of may have two entries
    report('tombstone_missing', id)
    if not dry then
      redis.call('HSET', key, 'tombstone', '1')
    end
  end
end
return { exact, start + #ids, tonumber(redis.call('GET', ours .. 'tombstones') or 0), table.concat(kinds), ids, found }
