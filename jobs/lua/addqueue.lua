-- Adds the queue of a destination that is not known to the set of queues, unless there
-- are too many.
--
-- KEYS[1] asynq's set of queues
-- ARGV[1] queue
-- ARGV[2] how many queues there may be
-- returns 1 if the queue is in the set, 0 if it was refused
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 1 then
  return 1
end
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
return redis.call('SADD', KEYS[1], ARGV[1])
