-- limit: takes of one named limit what a call takes of it, or ends that, on a Redis Cluster: the limit has another
-- slot than the destination.
--
-- KEYS   sorted set: ids of what was counted, by time; and the four of limits.lua
-- ARGV   arguments.lua
-- named
--   limits    its line, see limits.lua
--   permit    the token of the permit
--   lease     its length, ms
--   mark      what was taken is corrected, or given back, once by this id
--   keep      and if something is left, the slot stays taken
-- Result as in acquire.lua, or "released"

read_clock()
REPORTS = KEYS[1]
local token, all = given('permit'), named_limits.read()
local function answer(result, more)
  return table.concat({ result, int(now_us), '0', DESTINATION, more or '', '', '' }, '\n')
end
if given('mark') ~= '' then
  if given('keep') == '' or all[1].cost == 0 then
    named_limits.free(all, token)
  end
  if named_limits.corrects(all) and first_time(given('mark')) then
    named_limits.correct(all)
  end
  return answer('released')
end
local full = named_limits.full(all, token)
if full then
  return answer('denied', full)
end
local declared, start, _, why = ask_limits(nil, nil, 0, 0, 0, 0, all)
if not declared then
  return answer(start, why)
end
named_limits.take(all, token, number(named.lease))
take_limits(declared, start)
for _, limit in ipairs(declared) do
  write_limits(limit)
end
return answer('granted')
