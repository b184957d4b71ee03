-- Adds the queue of an unknown destination to the set of queues, unless it is full.
--
-- KEYS[1] asynq's set of queues
-- ARGV[1] queue   ARGV[2] how many queues there may be
-- returns 1 if the queue is in the set, 0 if it was refused
local queues_key = KEYS[1]
local queue, most = ARGV[1], ARGV[2]
if redis.call('SISMEMBER', queues_key, queue) == 1 then
  return 1
end
if redis.call('SCARD', queues_key) >= tonumber(most) then
  return 0
end
return redis.call('SADD', queues_key, queue)
