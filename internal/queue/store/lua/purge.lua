-- Deletes jobs of one queue whose retention has ended, with all that belongs to them.
--
-- KEYS[1] the set of finished jobs
-- ARGV[1] queue   ARGV[2] highest score to delete: 'now' for the present in unix
--   seconds, 'all' for all, else how many ms ago   ARGV[3] how many at most
-- returns how many were checked
--
-- A parent whose children are not released yet is kept for another minute.
local ended_key = KEYS[1]
local before, max = ARGV[2], ARGV[3]
local highest = clock[1]
if before == 'all' then
  highest = '+inf'
elseif before ~= 'now' then
  highest = int(now - tonumber(before))
end
local minute = before == 'now' and 60 or 60000
local ids = redis.call('ZRANGEBYSCORE', ended_key, '-inf', highest, 'LIMIT', 0, max)
if #ids > 0 then
  redis.call('ZREM', ended_key, unpack(ids))
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
  if f[4] then
    leave_line(id, key, f[4])
  end
  if f[5] and redis.call('HGET', ours .. 'replace', f[5]) == id then
    redis.call('HDEL', ours .. 'replace', f[5])
  end
  redis.call('DEL', key)
end
for _, id in ipairs(ids) do
  local key = task(id)
  local f = redis.call('HMGET', key, 'batch', 'expires_at', 'children', 'line', 'replace')
  if f[3] and redis.call('EXISTS', ours .. 'children:' .. id) == 1 then
    redis.call('ZADD', ended_key, int(tonumber(highest) + minute), id)
  else
    delete(id, key, f)
  end
end
return #ids
