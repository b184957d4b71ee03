-- Counts errors of a destination in an hour by their text, and keeps the most frequent ones.
--
-- KEYS[1] hash: text → '<count> <unix ms of the last one> <its job>'
-- ARGV[1] how many texts   ARGV[2] seconds to keep them   ARGV[3...] text, count, '<unix ms> <job>'
local key, texts = KEYS[1], {}
for i = 3, #ARGV, 3 do
  local before = string.match(redis.call('HGET', key, ARGV[i]) or '', '^%d+') or 0
  redis.call('HSET', key, ARGV[i], string.format('%d %s', ARGV[i + 1] + before, ARGV[i + 2]))
end
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  texts[#texts + 1] = { all[i], tonumber(string.match(all[i + 1], '^%d+')) }
end
table.sort(texts, function(a, b) return a[2] > b[2] end)
for i = tonumber(ARGV[1]) + 1, #texts do
  redis.call('HDEL', key, texts[i][1])
end
return redis.call('EXPIRE', key, ARGV[2])
