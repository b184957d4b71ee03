-- Enqueues jobs of one queue, in the order given.
--
-- KEYS[1] pending list
-- ARGV[1] queue
-- ARGV[2] now by the client's clock, unix nanoseconds (asynq's pending_since)
-- ARGV[3...] per job: id, encoded message, what else there is as a JSON object ('' =
--   nothing): delay and ttl in ms, at and expires_at in unix ms, batch, created in
--   unix ms, after (ids of its parents), key, order, payload (of a long one the numbers of the
--   message's bytes before it and up to its end), replace ('<owner> <replace-key>'), replace_max in ms
-- returns per job: 1 enqueued, 0 the id exists already; with a delay or a ttl, which
--   count from now by this clock, for one that has expired at once, and for one that replaces another, {1,
--   available_at, expires_at, when it expired} in unix ms ('' = none), and then the replaced job, the state of the new one}
--
-- The fields written are asynq's own enqueue and schedule scripts' (v0.26.0),
-- so that a job is an asynq task to asynq's tools.
local pending_key = KEYS[1]
local client_now = ARGV[2]
local results, ready = {}, {}
local keyed = false

-- Enqueues a job with options.
local function special(id, key, message, more)
  local o = cjson.decode(more)
  local fields, due = { 'msg', message }, nil
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local at, expires = o.at, o.expires_at
  if o.ttl then
    expires = now + o.ttl
  end
  local expired = expires and expires <= now
  if expired then -- it is published never, so the earlier job stays
    o.replace = nil
  end
  local old, since = o.replace and rare().newest(o.replace, id), now_ms
  if old then
    since = old.replace_since or now_ms
    set('replaced', old.id)
  end
  if o.replace then
    set('replace', o.replace)
    set('replace_since', since)
  end
  if o.delay then
    at = math.ceil(clock[1] * 1000 + clock[2] / 1000 + o.delay) -- never early
    if o.replace_max and at > since + o.replace_max then
      at = since + o.replace_max
      o.delay = math.max(0, at - now)
    end
  end
  if at and at > now then
    set('available_at', int(at))
    if o.delay then
      set('wait', int(math.ceil(o.delay)))
    end
  else
    at = nil
  end
  if expires then
    set('expires_at', int(expires))
  end
  if o.batch then
    set('batch', o.batch)
  end
  if o.key then
    set('key', o.key)
    keyed = true
  end
  if o.order then
    set('order', o.order)
  end
  if o.payload then
    set('outline', string.sub(message, 1, o.payload[1]) .. string.sub(message, o.payload[2] + 1))
  end
  for _, parent in ipairs(o.after or {}) do
    set('after:' .. parent, '1')
  end
  if o.after then
    set('waits', #o.after)
  end
  local is_ready = not (o.after or at or expired)
  if is_ready then
    set('state', 'pending')
    set('pending_since', client_now)
  end
  redis.call('HSET', key, unpack(fields))
  if not (old and rare().take_place(old, id, key, o.key, o.order, at, expired)) then
    ready[#ready + 1] = is_ready and id or nil
  elseif at then
    at, due = nil, at
  end
  if o.batch then
    redis.call('ZADD', ours .. 'batch:' .. o.batch, int(o.created), id)
    redis.call('ZADD', ours .. 'batches', now_ms, o.batch)
  end
  if expired then
    rare().expire(id, key, 'pending', 'at once')
  else
    if expires then
      rare().wait_until('expiry', id, expires)
    end
    if o.after then
      rare().park(id, key, 'waiting')
    elseif at then
      rare().to_timed(id, key, 'scheduled', at, '')
    end
  end
  if o.delay or o.ttl or expired or old then
    at = at or due
    return { 1, at and int(at) or '', expires and int(expires) or '', expired and now_ms or '', old and old.id or '',
      old and redis.call('HGET', key, 'state') or '' }
  end
  return 1
end

for i = 3, #ARGV, 3 do
  local id, key = ARGV[i], task(ARGV[i])
  if redis.call('EXISTS', key) == 1 then
    results[#results + 1] = 0
  elseif ARGV[i + 2] == '' then
    redis.call('HSET', key, 'msg', ARGV[i + 1], 'state', 'pending', 'pending_since', client_now)
    ready[#ready + 1] = id
    results[#results + 1] = 1
  else
    results[#results + 1] = special(id, key, ARGV[i + 1], ARGV[i + 2])
  end
end
if keyed then
  redis.call('SET', ours .. 'keyed', '1') -- there may be keys to take turns
end
if #ready > 0 then
  if redis.call('LPUSH', pending_key, unpack(ready)) == #ready then
    rare().wake()
  end
end
return results
