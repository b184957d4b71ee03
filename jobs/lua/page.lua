-- Reads the next ids of a list or a sorted set, the newest first, after those
-- that were read before. In one step, so that nothing can move in between.
--
-- KEYS[1] the list (pushed on the left, popped from the right) or the set
-- ARGV[1] 'list' or 'set'   ARGV[2] how many at most
-- ARGV[3] an id that was read before, '' = none was:
--         of a list the leftmost one, of a set the last one
-- ARGV[4] of a list how many were read from that one on, of a set its score
-- returns of a list {1 if that id is still there, how many of the following came
--   since on its left, id, ...}; of a set {id, score, ...}
--
-- What has come to the left of a list since is read from right to left, so that
-- all that was read stays one stretch.
local n, known = tonumber(ARGV[2]), ARGV[3]
if ARGV[1] == 'set' then
  if known == '' then
    return redis.call('ZREVRANGE', KEYS[1], 0, n - 1, 'WITHSCORES')
  end
  local rank = redis.call('ZREVRANK', KEYS[1], known)
  if rank then
    return redis.call('ZREVRANGE', KEYS[1], rank + 1, rank + n, 'WITHSCORES')
  end
  -- It has moved: what shares its score may be read again.
  return redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[4], '-inf', 'WITHSCORES', 'LIMIT', 0, n)
end
local from, out = 0, { 0, 0 }
if known ~= '' then
  -- Beyond so many new ones it is cheaper to begin again.
  local at = redis.call('LPOS', KEYS[1], known, 'MAXLEN', 10000)
  if at then
    local newer = redis.call('LRANGE', KEYS[1], math.max(0, at - n), at)
    for i = #newer - 1, 1, -1 do
      out[#out + 1] = newer[i]
    end
    out[1], out[2] = 1, #newer - 1
    from = at + tonumber(ARGV[4])
  end
end
if out[2] < n then
  for _, id in ipairs(redis.call('LRANGE', KEYS[1], from, from + n - out[2] - 1)) do
    out[#out + 1] = id
  end
end
return out
