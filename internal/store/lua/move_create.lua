-- Creates jobs in the queue that they move to, in the state `moving`: nothing starts,
-- ends or changes them, and their ids are taken.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] the queue that they come from   ARGV[3] detail of the event
-- ARGV[4] operator
-- ARGV[5...] per job: id, digest (see move_read.lua), state to start in, when it was
--   created in unix ms, how many values follow, fields and values in turn
-- returns per job: 1 created, 2 another move has created it, 0 the id exists
local from, detail, by = ARGV[2], ARGV[3], ARGV[4]
local out, i = {}, 5
while i <= #ARGV do
  local id, digest, state, created, n = unpack(ARGV, i, i + 4)
  local key, first = task(id), i + 5
  i = first + tonumber(n)
  local present = redis.call('HGET', key, 'state')
  if present then
    out[#out + 1] = present == 'moving' and 2 or 0
  else
    for at = first, i - 1, 1000 do
      redis.call('HSET', key, unpack(ARGV, at, math.min(at + 999, i - 1)))
    end
    local own = redis.call('HGET', key, 'job_key')
    if own then
      restore_key(key, own)
    end
    redis.call('HSET', key, 'state', 'moving', 'move_state', state, 'move_from', from, 'move_digest', digest)
    redis.call('ZADD', ours .. 'moving', now_ms, id)
    local batch = redis.call('HGET', key, 'batch')
    if batch then
      redis.call('ZADD', ours .. 'batch:' .. batch, created, id)
      redis.call('ZADD', ours .. 'batches', now_ms, batch)
    end
    append_history(key, { { status = status_of(state), event = 'moved', detail = detail, by = by } })
    out[#out + 1] = 1
  end
end
return out
