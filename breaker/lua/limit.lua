-- limit: takes of one named limit what a call takes of it, or ends that, on a Redis Cluster: the limit has another
-- slot than the destination.
--
-- KEYS   the four of limits.lua
-- ARGV   arguments.lua
-- named
--   limits    its line, see limits.lua
--   permit    the token of the permit
--   lease     its length, ms
--   at        when it has taken what it has, µs
--   give      what the call has cost is known, or it was not made; keep: it goes on, and its slot stays taken
-- Result as that of acquire.lua, or "released"

read_clock()
REPORTS = KEYS[2]
local token, all = given('permit'), named_limits.read()
local function answer(result, more)
  return table.concat({ result, int(now_us), '0', DESTINATION, more or '', '', '' }, '\n')
end
if given('give') ~= '' then
  if given('keep') == '' then
    named_limits.free(all, token)
  end
  named_limits.correct(all)
  return answer('released')
end
local full = named_limits.full(all, token)
if full then
  return answer('denied', full)
end
local declared, start, _, why = ask_limits(nil, nil, 0, 0, 0, number(named.at), all)
if not declared then
  return answer(start, why)
end
named_limits.take(all, token, number(named.lease))
take_limits(declared, number(named.at), start)
for _, limit in ipairs(declared) do
  write_limits(limit)
end
return answer('granted')
