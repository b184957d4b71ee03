-- Reads the next ids of a list or a sorted set, the newest first, after those
-- that were read before. In one step, so that nothing can move in between.
--
-- KEYS[1] the list (pushed on the left, popped from the right) or the set
-- ARGV[1] 'list', 'set', or 'growing' for a set into which jobs come at its top
-- ARGV[2] how many at most
-- ARGV[3] an id that was read before, '' = none was:
--         of a list the leftmost one, of a set the last one
-- ARGV[4] of a list how many were read from that one on, of a set its score
-- ARGV[5] of a growing set the highest score that was read, '' = none was
-- returns of a list {1 if that id is still there, how many of the following came
--   since on its left, id, ...}; of a set {id, score, ...}, and before
--   them, of a growing one, how many of the following came since at its top
--
-- The script reads new ids of a list from right to left, and new ids of a growing set from the
-- bottom up, so that all read ids are contiguous.
local key = KEYS[1]
local kind, n, known, known_at, top = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

-- The next of a set, from the highest score down.
local function page(count)
  if known == '' then
    return redis.call('ZREVRANGE', key, 0, count - 1, 'WITHSCORES')
  end
  if redis.call('ZSCORE', key, known) == known_at then
    local rank = redis.call('ZREVRANK', key, known)
    return redis.call('ZREVRANGE', key, rank + 1, rank + count, 'WITHSCORES')
  end
  -- It has moved, perhaps within the set: search for its former place, between the read ids
  -- and the unread ones.
  local score = tonumber(known_at) or math.huge
  local low, high = 0, redis.call('ZCARD', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = redis.call('ZREVRANGE', key, middle, middle, 'WITHSCORES')
    local s = tonumber(at[2])
    if s > score or s == score and not less(at[1], known) then
      low = middle + 1
    else
      high = middle
    end
  end
  return redis.call('ZREVRANGE', key, low, low + count - 1, 'WITHSCORES')
end

if kind == 'set' then
  return page(n)
end
if kind == 'growing' then
  local out = { 0 }
  if top ~= '' then
    local newer = redis.call('ZRANGEBYSCORE', key, '(' .. top, '+inf', 'WITHSCORES', 'LIMIT', 0, n)
    out = { #newer / 2, unpack(newer) }
  end
  if out[1] < n then
    for _, value in ipairs(page(n - out[1])) do
      out[#out + 1] = value
    end
  end
  return out
end
local from, out = 0, { 0, 0 }
if known ~= '' then
  -- With more than 10,000 new ids it is cheaper to begin again.
  local at = redis.call('LPOS', key, known, 'MAXLEN', 10000)
  if at then
    local newer = redis.call('LRANGE', key, math.max(0, at - n), at)
    for i = #newer - 1, 1, -1 do
      out[#out + 1] = newer[i]
    end
    out[1], out[2] = 1, #newer - 1
    from = at + tonumber(known_at)
  end
end
if out[2] < n then
  for _, id in ipairs(redis.call('LRANGE', key, from, from + n - out[2] - 1)) do
    out[#out + 1] = id
  end
end
return out
