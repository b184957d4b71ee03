-- Counts errors of a destination in an hour by their text, as many texts as are most frequent.
--
-- KEYS[1] hash: text → '<count> <unix ms of the last one> <its job>'; '' has all other texts
-- ARGV[1] how many texts   ARGV[2] seconds to keep them
-- ARGV[3...] text, count, '<unix ms> <job>'
local key, most = KEYS[1], tonumber(ARGV[1])

local function add(text, count, last)
  local before = string.match(redis.call('HGET', key, text) or '', '^%d+')
  redis.call('HSET', key, text, string.format('%d %s', count + (tonumber(before) or 0), last))
end

for i = 3, #ARGV, 3 do
  add(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2])
end
local over = redis.call('HLEN', key) - redis.call('HEXISTS', key, '') - most
if over > 0 then
  local all, texts = redis.call('HGETALL', key), {}
  for i = 1, #all, 2 do
    if all[i] ~= '' then
      local count, last = string.match(all[i + 1], '^(%d+) (.*)$')
      texts[#texts + 1] = { text = all[i], count = tonumber(count), last = last }
    end
  end
  table.sort(texts, function(a, b) return a.count < b.count end)
  for i = 1, over do
    redis.call('HDEL', key, texts[i].text)
    add('', texts[i].count, texts[i].last)
  end
end
redis.call('EXPIRE', key, ARGV[2])
return 0
