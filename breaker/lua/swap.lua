-- swap: stores what the rules have decided, if the records are still those by which they did.
--
-- KEYS, ARGV 1…7 and what is returned: arguments.lua
-- named
--   step, key_step, generation, key_generation  of the records by which it was decided; counts: it only counts, and step
--            is no matter
--   write    id of this swap: asked again, it changes nothing
--   writes   JSON: [{"key": of the key, "record": what the rules have written, if that has changed, "was", "is": the meter before and after,
--            "event", "ended": entries of the history and of the incidents, "incident" that is over,
--            "note": the event is no transition, "add": {field: number}, "last_failure", "below": number of failures}, …]
--   reports  permits whose reports are counted; ended  the permits whose call is over
--   joined, key_joined  a budget begins: what instances have joined with is of another one
--   cap, key_cap, sequence, calls, key_calls  as in done.lua
-- Result
--   "stored"    what is added is "slot" and "key-slot" if this instance waits for a slot that is free now
--   "conflict"  as "decide", see metering.lua

prepare()
local parent, child = read_breakers()
local write_id, writes = given('write'), cjson.decode(named.writes or '[]')
local function changed()
  if parent.generation ~= number(named.generation) or child and child.generation ~= number(named.key_generation) then
    return true
  elseif given('counts') == '' then
    return parent.step ~= number(named.step) or child and child.step ~= number(named.key_step)
  end
  for _, w in ipairs(writes) do
    local b = w.key and child or parent
    if w.below and w.add.failures > 0 and b.failures + w.add.failures >= w.below then
      return true
    end
  end
  return parent.due or child and child.due or redis.call('ZSCORE', REPORTS, string.match(given('reports'), '%S+')) -- asked again
end
if write_id ~= '' and (parent.write == write_id or child and child.write == write_id) then
  return finish('stored', parent, child)
elseif changed() then
  return decide(parent, child, 'conflict', given('reports'))
end
for token in string.gmatch(given('reports'), '%S+') do
  first_time(token)
end
for _, b in ipairs({ parent, child }) do
  local prefix = b.key and 'key_' or ''
  if given(prefix .. 'joined') ~= '' then
    redis.call('DEL', b.joined_key)
  end
end

-- take sets what the rules have changed of the meter. What calls have counted meanwhile stays.
local function take(b, fields, was, is, none)
  for _, field in ipairs(fields) do
    if not OF_THE_SWAP[field] and was[field] ~= is[field] then
      b[field] = is[field] or none
    end
  end
end
for _, w in ipairs(writes) do
  local b = w.key and child or parent
  for field, n in pairs(w.add or {}) do
    b[field] = b[field] + n
  end
  if w.add then
    b.last_failure = w.last_failure or b.last_failure
    took_part(b)
  end
  if w.record then
    use(b, w.record, true)
  end
  if w.is then
    take(b, METER_TEXTS, w.was, w.is, '')
    take(b, METER_NUMBERS, w.was, w.is, 0)
  end
  if w.incident then
    b.incident = w.incident
  end
  if not w.note then
    b.step, b.write = b.step + 1, write_id
  end
  write(b, w.event, w.ended, w.note)
end
for _, b in ipairs({ parent, child }) do
  for token in string.gmatch(given('ended'), '%S+') do
    end_call(b, token)
  end
  if join(b) then
    b.dirty = true -- another call may start
  end
end
return finish('stored', parent, child, '', woken_here(parent, child))
