-- Adds the queue of an unknown destination to the set of queues, unless its namespace has
-- too many there. All of asynq's programs share the set.
--
-- KEYS[1] asynq's set of queues
-- ARGV[1] queue   ARGV[2] how many queues the namespace may have
-- returns 1 if the queue is in the set, 0 if it was refused
local queues_key = KEYS[1]
local queue, most = ARGV[1], ARGV[2]
if redis.call('SISMEMBER', queues_key, queue) == 1 then
  return 1
end
if redis.call('SCARD', queues_key) < tonumber(most) then
  return redis.call('SADD', queues_key, queue)
end
local prefix, own = string.match(queue, '^[^:]*:'), 0
for _, other in ipairs(redis.call('SMEMBERS', queues_key)) do
  if string.sub(other, 1, #prefix) == prefix then
    own = own + 1
  end
end
if own >= tonumber(most) then
  return 0
end
return redis.call('SADD', queues_key, queue)
