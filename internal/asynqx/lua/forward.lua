-- Moves jobs whose time has come to the back of the queue, up to 100 of each
-- set. Stands in for asynq's forwardCmd, which knows whole seconds only and
-- believes the worker's clock.
--
-- KEYS[1] scheduled   KEYS[2] retry   KEYS[3] pending
-- ARGV[1] task key prefix
-- ARGV[2] ms: jobs put off for the reason ARGV[3] for so long or less are due
--         now, because what they waited for has come early; 0 = none are
-- returns how many were taken out of the sets
--
-- Each worker calls this every second for each queue; where both sets are empty
-- it costs no more than looking.
if not redis.call('ZRANGE', KEYS[1], 0, 0)[1] and not redis.call('ZRANGE', KEYS[2], 0, 0)[1] then
  return 0
end
local time = redis.call('TIME')
local seconds = string.format('%.3f', time[1] + math.floor(time[2] / 1000) / 1000)
local ns = time[1] .. string.format('%06d', tonumber(time[2])) .. '000'
local moved = 0
for i = 1, 2 do
  local ids = redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', seconds, 'LIMIT', 0, 100)
  local ready = {}
  for _, id in ipairs(ids) do
    local key = ARGV[1] .. id
    if redis.call('EXISTS', key) == 1 then
      redis.call('HSET', key, 'state', 'pending', 'pending_since', ns)
      ready[#ready + 1] = id
    end
  end
  if #ids > 0 then
    redis.call('ZREM', KEYS[i], unpack(ids))
    moved = moved + #ids
  end
  if #ready > 0 then
    redis.call('LPUSH', KEYS[3], unpack(ready))
  end
end
if ARGV[2] ~= '0' then
  local held = string.format('%.3f', time[1] + tonumber(ARGV[2]) / 1000)
  local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. seconds, held, 'LIMIT', 0, 1000)
  for _, id in ipairs(ids) do
    local key = ARGV[1] .. id
    if redis.call('HGET', key, 'reason') == ARGV[3] then
      redis.call('ZREM', KEYS[1], id)
      redis.call('LPUSH', KEYS[3], id)
      redis.call('HSET', key, 'state', 'pending', 'pending_since', ns)
      moved = moved + 1
    end
  end
end
return moved
