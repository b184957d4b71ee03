-- Looks at a queue for a forecast: what waits, until when, and samples of it. It changes nothing and its work
-- does not depend on the length of the queue.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many samples of each kind   ARGV[3...] instants in unix seconds, the first one first
-- returns {now in unix ms, pending jobs, jobs in flight, held jobs of keys in turns, keys in turns, other held jobs,
--   jobs that wait for parents, the operator's pause ('' = none), {lengths of keys in turns},
--   {unix ms, how many become ready by then since the one before, ...}, {place, when the job there entered in unix ms, ...},
--   {id, expires at, how many jobs it stands for, when it entered or is due, state, ...} of jobs that expire,
--   messages of some pending jobs, long ones without their payloads, {forecast errors of a job that started, ...},
--   {id that gets a forecast, its place, 1 if that is in the turns of its key, ...},
--   {how many jobs completed from each instant until the next, and since the last}, empty if none is kept}
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

-- One of fifty jobs gets a forecast, which its start is compared with, and another one whenever a quarter of its wait is over:
-- of the last ones of the queue, or of keys in turns, and of some between the others.
local wanted = {}
local function want(id, place, in_turn)
  if #wanted < 18 and tonumber(string.sub(redis.sha1hex(id), 1, 6), 16) % 50 == 0 then
    local f = redis.call('HMGET', task(id), 'state', 'eta', 'key')
    local asked, at = string.match(f[2] or '0 0 0 0', '(%d+) (%d+) %d+ %d+$')
    if (f[1] == 'pending' or f[1] == 'held') and #(f[2] or '') < 450 and now - asked >= 1000 and 4 * now >= 3 * asked + at then
      if in_turn then
        place = redis.call('ZRANK', ours .. 'held:' .. (f[3] or ''), id)
      end
      for _, v in ipairs(place and { id, int(place), in_turn and 1 or 0 } or {}) do
        wanted[#wanted + 1] = v
      end
    end
  end
end
local function want_all(first, n)
  for _, id in ipairs(in_turns > 0 and redis.call('ZRANGE', ours .. 'held', -first - n, -first - 1) or {}) do
    want(id, nil, true)
  end
  for i, id in ipairs(redis.call('LRANGE', pending_key, first, first + n - 1)) do
    want(id, in_turns + math.max(0, math.floor(pending * (1 - (first + i) / length))))
  end
end
want_all(0, 500)
want_all(500 + now % math.max(1, math.max(held, length) - 500), 250)

-- Completed jobs are in the order of the end of their retention, which the latest one shows.
local completed = {}
local latest = #ARGV > 2 and redis.call('ZRANGE', asynq .. 'completed', -1, -1, 'WITHSCORES') or {}
local ended = latest[1] and tonumber(redis.call('HGET', task(latest[1]), 'ended_at') or '')
for i = 3, ended and #ARGV or 0 do
  local kept = latest[2] - math.floor(ended / 1000)
  completed[#completed + 1] = redis.call('ZCOUNT', asynq .. 'completed', int(ARGV[i] + kept),
    ARGV[i + 1] and '(' .. int(ARGV[i + 1] + kept) or '+inf')
end

return { now_ms, pending, redis.call('LLEN', asynq .. 'active'), in_turns, keys, held - in_turns,
  redis.call('ZCARD', ours .. 'waiting'), redis.call('GET', asynq .. 'paused') or '', lengths, later, entered, expiring,
  messages, redis.call('LRANGE', ours .. 'forecasts', 0, -1), wanted, completed }
