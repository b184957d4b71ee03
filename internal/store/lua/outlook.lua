-- Looks at a queue for a forecast: what waits, until when, and samples of it. It changes nothing and its work
-- does not depend on the length of the queue.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many samples of each kind
-- returns {now in unix ms, pending jobs, jobs in flight, held jobs of keys in turns, keys in turns, other held jobs,
--   jobs that wait for parents, the operator's pause ('' = none), {lengths of keys in turns},
--   {unix ms, how many become ready by then since the one before, ...}, {place, when the job there entered in unix ms, ...},
--   {id, expires at, as one of so many, when it entered or is due, state, ...} of jobs that expire,
--   messages of some pending jobs, long ones without their payloads, {forecast errors as index, how often, ...},
--   {id that gets a forecast, its place, 1 if that is in the turns of its key, ...}}
local pending_key = KEYS[1]
local most = tonumber(ARGV[2])
local length = redis.call('LLEN', pending_key)
local pending = math.max(0, length - tonumber(redis.call('GET', ours .. 'tombstones') or 0))
local held = redis.call('ZCARD', ours .. 'held')
local keys = redis.call('ZCARD', ours .. 'turns')

-- The held jobs of keys in turns, as stats.lua counts them.
local lengths, sampled = {}, 0
for _, name in ipairs(keys > 0 and redis.call('ZRANGE', ours .. 'turns', 0, most - 1) or {}) do
  local n = redis.call('ZCARD', ours .. 'held:' .. name)
  lengths[#lengths + 1], sampled = n, sampled + n
end
local in_turns = #lengths > 0 and math.min(held, math.floor(sampled / #lengths * keys)) or 0
if keys == redis.call('ZCARD', ours .. 'held_keys') then
  in_turns = held
end

-- Ranks of a set or list of n, spread evenly, the last one included.
local function ranks(n, of)
  local out, last = {}, -1
  for i = 1, math.min(n, of) do
    local rank = math.floor((n - 1) * (i - 1) / math.max(1, math.min(n, of) - 1))
    if rank > last then
      out[#out + 1], last = rank, rank
    end
  end
  return out
end

local later, before = {}, 0
local timed = redis.call('ZCARD', ours .. 'due')
for _, rank in ipairs(ranks(timed, 32)) do
  later[#later + 1] = redis.call('ZRANGE', ours .. 'due', rank, rank, 'WITHSCORES')[2]
  later[#later + 1], before = rank + 1 - before, rank + 1
end
local waiting = redis.call('ZRANGEBYSCORE', ours .. 'held_keys', '-inf', '(9000000000000000', 'WITHSCORES', 'LIMIT', 0, held > in_turns and most or 0)
for i = 1, #waiting, 2 do -- keys that their own limits hold
  later[#later + 1] = int(math.max(now, waiting[i + 1]))
  later[#later + 1] = redis.call('ZCARD', ours .. 'held:' .. waiting[i])
end

local entered, messages = {}, {}
local function sample(id, place, with_message)
  local f = redis.call('HMGET', task(id), 'state', 'pending_since', 'outline')
  if f[2] and (f[1] == 'pending' or f[1] == 'held') then
    entered[#entered + 1] = int(place)
    entered[#entered + 1] = int(math.floor(tonumber(f[2]) / 1000000))
    if with_message and #messages < 8 then
      messages[#messages + 1] = f[3] or redis.call('HGET', task(id), 'msg')
    end
  end
end
for _, rank in ipairs(in_turns > 0 and ranks(held, 16) or {}) do
  sample(redis.call('ZRANGE', ours .. 'held', rank, rank)[1], rank / held * in_turns, rank % 2 == 0)
end
for i, rank in ipairs(ranks(length, 32)) do -- the list's right end is its head
  sample(redis.call('LINDEX', pending_key, -rank - 1) or '', in_turns + rank / length * pending, i % 4 == 1)
end

-- The first ones, and one of each portion of the others.
local expiring, expire = {}, redis.call('ZCARD', ours .. 'expiry')
local first = math.min(expire, expire <= most and most or 20)
local function expires(rank, weight)
  local e = redis.call('ZRANGE', ours .. 'expiry', rank, rank, 'WITHSCORES')
  local f = redis.call('HMGET', task(e[1]), 'state', 'pending_since', 'available_at')
  local since = f[2] and int(math.floor(tonumber(f[2]) / 1000000)) or now_ms
  if f[1] == 'scheduled' or f[1] == 'retry' then
    since = f[3] or now_ms
  end
  if f[1] and f[1] ~= 'paused' and f[1] ~= 'waiting' then
    for _, v in ipairs({ e[1], e[2], tostring(weight), since, f[1] }) do
      expiring[#expiring + 1] = v
    end
  end
end
for rank = 0, first - 1 do
  expires(rank, 1)
end
local portions = expire > first and most - first or 0
for i = 0, portions - 1 do
  expires(first + math.floor((expire - first) * (i + 0.5) / portions), (expire - first) / portions)
end

-- One of fifty jobs gets a forecast, which its start is compared with: of the last ones of the queue, or of keys in turns.
local wanted = {}
local function want(id, place, in_turn)
  if #wanted < 60 and tonumber(string.sub(redis.sha1hex(id), 1, 6), 16) % 50 == 0 then
    local f = redis.call('HMGET', task(id), 'state', 'eta', 'key')
    if (f[1] == 'pending' or f[1] == 'held') and not f[2] then
      if in_turn then
        place = redis.call('ZRANK', ours .. 'held:' .. (f[3] or ''), id)
      end
      for _, v in ipairs(place and { id, int(place), in_turn and 1 or 0 } or {}) do
        wanted[#wanted + 1] = v
      end
    end
  end
end
for _, id in ipairs(in_turns > 0 and redis.call('ZRANGE', ours .. 'held', -500, -1) or {}) do
  want(id, nil, true)
end
for i, id in ipairs(redis.call('LRANGE', pending_key, 0, 499)) do
  want(id, in_turns + math.max(0, pending - i))
end

return { now_ms, pending, redis.call('LLEN', asynq .. 'active'), in_turns, keys, held - in_turns,
  redis.call('ZCARD', ours .. 'waiting'), redis.call('GET', asynq .. 'paused') or '', lengths, later, entered, expiring,
  messages, redis.call('HGETALL', ours .. 'eta'), wanted }
