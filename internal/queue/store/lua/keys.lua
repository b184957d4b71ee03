-- Counts the waiting jobs of a queue by key: all that are held, and a sample of the pending list.
--
-- KEYS[1] pending   KEYS[2] held_keys
-- ARGV[1] queue   ARGV[2] how many ids at each end   ARGV[3] how many keys with held jobs
-- returns {ids in the list, ids read, keys with held jobs that were left out, then of each key: name, pending jobs
--   among those read, held jobs}
local pending_key, held_keys_key, each, most = KEYS[1], KEYS[2], tonumber(ARGV[2]), tonumber(ARGV[3])
local size, read, counts = redis.call('LLEN', pending_key), 0, {}
local function count(name, field, n)
  counts[name] = counts[name] or { pending = 0, held = 0 }
  counts[name][field] = counts[name][field] + n
end
local function look(ids)
  for _, id in ipairs(ids) do
    local f = redis.call('HMGET', task(id), 'state', 'key')
    read = read + 1
    if f[1] == 'pending' then -- else it is a tombstone
      count(f[2] or '', 'pending', 1)
    end
  end
end
look(redis.call('LRANGE', pending_key, 0, each - 1))
look(redis.call('LRANGE', pending_key, math.max(each, size - each), -1))
local names = redis.call('ZRANGE', held_keys_key, 0, most - 1)
for _, name in ipairs(names) do
  count(name, 'held', redis.call('ZCARD', held_of(name)))
end
local out = { size, read, redis.call('ZCARD', held_keys_key) - #names }
for name, n in pairs(counts) do
  out[#out + 1] = name
  out[#out + 1] = n.pending
  out[#out + 1] = n.held
end
return out
