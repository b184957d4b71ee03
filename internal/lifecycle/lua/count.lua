-- Counts the jobs of a batch in this queue by their state, a part at a time.
--
-- KEYS[1] the batch's index
-- ARGV[1] queue   ARGV[2] the last id counted before, '' = none
-- ARGV[3] its score   ARGV[4] how many at most
-- returns {id, score to go on with ('' = all were counted), state, count, ...}
local ids
local n = tonumber(ARGV[4])
if ARGV[2] == '' then
  ids = redis.call('ZRANGE', KEYS[1], 0, n - 1, 'WITHSCORES')
else
  local rank = redis.call('ZRANK', KEYS[1], ARGV[2])
  if rank then
    ids = redis.call('ZRANGE', KEYS[1], rank + 1, rank + n, 'WITHSCORES')
  else
    ids = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, n)
  end
end
local counts = {}
for i = 1, #ids, 2 do
  local state = redis.call('HGET', task(ids[i]), 'state')
  if state then
    counts[state] = (counts[state] or 0) + 1
  end
end
local out = { '', '' }
if #ids == 2 * n then
  out = { ids[#ids - 1], ids[#ids] }
end
for state, count in pairs(counts) do
  out[#out + 1] = state
  out[#out + 1] = count
end
return out
