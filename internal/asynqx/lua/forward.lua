-- Moves jobs whose time has come to the back of the queue, up to 100 of each
-- set. Stands in for asynq's forwardCmd, which knows whole seconds only and
-- believes the worker's clock.
--
-- KEYS[1] scheduled   KEYS[2] retry   KEYS[3] pending
-- ARGV[1] task key prefix
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
  if #ids > 0 then
    -- First, because a Redis that is full refuses a script's first write unless
    -- it frees memory, and lets it finish otherwise.
    redis.call('ZREM', KEYS[i], unpack(ids))
    moved = moved + #ids
  end
  for _, id in ipairs(ids) do
    local key = ARGV[1] .. id
    if redis.call('EXISTS', key) == 1 then
      redis.call('HSET', key, 'state', 'pending', 'pending_since', ns)
      ready[#ready + 1] = id
    end
  end
  if #ready > 0 then
    redis.call('LPUSH', KEYS[3], unpack(ready))
  end
end
return moved
