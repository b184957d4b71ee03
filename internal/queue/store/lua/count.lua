-- Counts the jobs of a batch in this queue by their state, a part at a time.
--
-- KEYS[1] the batch's index
-- ARGV[1] queue   ARGV[2] the last id counted before, '' = none
-- ARGV[3] its score   ARGV[4] how many at most
-- returns {id, score to go on with ('' = all were counted), state, count, ...}
local batch_key = KEYS[1]
local known, score, n = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local from = 0
if known ~= '' then
  local rank = redis.call('ZRANK', batch_key, known)
  from = rank and rank + 1 or 0
  -- It has been deleted: search for its former place.
  local high = rank and 0 or redis.call('ZCARD', batch_key)
  while from < high do
    local middle = math.floor((from + high) / 2)
    local at = redis.call('ZRANGE', batch_key, middle, middle, 'WITHSCORES')
    local s = tonumber(at[2])
    if s < score or s == score and not less(known, at[1]) then
      from = middle + 1
    else
      high = middle
    end
  end
end
local ids = redis.call('ZRANGE', batch_key, from, from + n - 1, 'WITHSCORES')
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
