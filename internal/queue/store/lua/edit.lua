-- Precedes retry.lua where jobs are changed, too. ARGV[5] how many ids there are, in ARGV[6...]; then per job: SHA-1 of the
-- message that was read, the new message, its outline ('' = none), which parts were changed.
local n = tonumber(ARGV[5])
first_id, last_id = 6, 5 + n
edit = function(i, key)
  local first = i + n + 3 * (i - 6)
  local read, message, outline, parts = ARGV[first], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  if redis.sha1hex(redis.call('HGET', key, 'msg')) ~= read then
    return nil
  end
  redis.call('HSET', key, 'msg', message)
  if outline == '' then
    redis.call('HDEL', key, 'outline')
  else
    redis.call('HSET', key, 'outline', outline)
  end
  return 'set ' .. parts .. (why ~= '' and ': ' .. why or '')
end
