-- Returns the commands that restore all keys, at one instant.
-- KEYS: none; the embedded server has one database, and no other runs this.
local out = {}
local function add(...)
  out[#out + 1] = {...}
end

-- Adds commands of at most 256 values each.
local function spread(command, key, values)
  for first = 1, #values, 256 do
    add(command, key, unpack(values, first, math.min(first + 255, #values)))
  end
end

for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' then
    add('SET', key, redis.call('GET', key))
  elseif kind == 'hash' then
    spread('HSET', key, redis.call('HGETALL', key))
  elseif kind == 'list' then
    spread('RPUSH', key, redis.call('LRANGE', key, 0, -1))
  elseif kind == 'set' then
    spread('SADD', key, redis.call('SMEMBERS', key))
  elseif kind == 'zset' then
    local list = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #list, 2 do
      list[i], list[i + 1] = list[i + 1], list[i]
    end
    spread('ZADD', key, list)
  elseif kind == 'stream' then
    local newest
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      newest = entry[1]
      add('XADD', key, newest, unpack(entry[2]))
    end
    local last = redis.call('XINFO', 'STREAM', key)[4]
    if last ~= newest and last ~= '0-0' and last ~= '' then
      -- Also an empty stream exists, and never gives an id twice.
      add('XADD', key, last, 'none', '')
      add('XDEL', key, last)
    end
  else
    error('key ' .. key .. ' is a ' .. kind .. ', which cannot be saved')
  end
  local expires = redis.call('PEXPIRETIME', key)
  if expires > 0 then
    add('PEXPIREAT', key, string.format('%.0f', expires))
  end
end
return out
