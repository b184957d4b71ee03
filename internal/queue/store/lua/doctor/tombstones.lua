-- Corrects the count of tombstones: of a short list by counting here, of a long one by an
-- earlier count, if the counter has not changed.
--
-- KEYS[1] pending
-- ARGV[4] how long a list is counted here
-- ARGV[5] the counter at an earlier reading ('' = unknown)
-- ARGV[6] the right count at that reading
-- returns {-1 if the list is too long, 1 if the count is wrong, 0 if it is right;
--   the count, the right count}
local pending_key = KEYS[1]
local short_list, counted, expected = ARGV[4], ARGV[5], ARGV[6]
local count = tonumber(redis.call('GET', ours .. 'tombstones') or 0)
local right
local length = redis.call('LLEN', pending_key)
if length <= tonumber(short_list) then
  right = length
  local seen = {}
  for _, id in ipairs(redis.call('LRANGE', pending_key, 0, -1)) do
    if not seen[id] and redis.call('HGET', task(id), 'state') == 'pending' then
      seen[id] = true
      right = right - 1
    end
  end
elseif counted ~= '' and tonumber(counted) == count then
  right = tonumber(expected)
else
  return { -1, count, 0 }
end
if right == count then
  return { 0, count, right }
end
if not dry and right == 0 then
  redis.call('DEL', ours .. 'tombstones')
elseif not dry then
  redis.call('SET', ours .. 'tombstones', int(right))
end
return { 1, count, right }
