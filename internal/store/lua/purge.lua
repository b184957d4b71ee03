-- Deletes jobs of one queue whose retention has ended, with all that belongs to
-- them, up to ARGV[3] of them.
--
-- KEYS[1] the set of ended jobs
-- ARGV[1] queue   ARGV[2] highest score to delete: 'now' for the present in unix
--   seconds, else how many ms ago   ARGV[3] how many at most
-- returns how many were looked at
--
-- A parent whose children do not know of its end yet is kept for another minute.
local highest = clock[1]
if ARGV[2] ~= 'now' then
  highest = int(now - tonumber(ARGV[2]))
end
local minute = ARGV[2] == 'now' and 60 or 60000
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', highest, 'LIMIT', 0, ARGV[3])
if #ids > 0 then
  redis.call('ZREM', KEYS[1], unpack(ids))
end
local function delete(id, key, f)
  if f[1] then
    redis.call('ZREM', ours .. 'batch:' .. f[1], id)
    if redis.call('EXISTS', ours .. 'batch:' .. f[1]) == 0 then
      redis.call('ZREM', ours .. 'batches', f[1])
    end
  end
  if f[2] then
    redis.call('ZREM', ours .. 'expiry', id)
  end
  redis.call('DEL', key)
end
for _, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'batch', 'expires_at', 'children')
  if f[3] and redis.call('EXISTS', ours .. 'children:' .. id) == 1 then
    redis.call('ZADD', KEYS[1], int(tonumber(highest) + minute), id)
  else
    delete(id, key, f)
  end
end
return #ids
