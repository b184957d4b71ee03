-- Adds children to a job that is moving to this queue, unless another call has finished its
-- move: the set of a job that is not here would cancel them.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] id   ARGV[3] digest (see move_read.lua)
-- ARGV[4...] children, as '<queue> <id>'
-- returns 1, or 0 if its move is finished
local id, digest = ARGV[2], ARGV[3]
local f = redis.call('HMGET', task(id), 'state', 'move_digest')
if f[1] ~= 'moving' or f[2] ~= digest then
  return 0
end
for i = 4, #ARGV do
  redis.call('SADD', ours .. 'children:' .. id, ARGV[i])
end
return 1
