-- join: an instance that has heard that calls are counted tells how many of its
-- own are in flight that were not.
--
-- KEYS  as in the prelude
-- ARGV  1…10 as in the prelude
--       11  sequence, 12 and 13 those calls of the destination and of the key
-- Returns result "joined"

prepare()
local parent, child = read_breakers()
local b = child or parent
if join(b, ARGV[11], b.key and ARGV[13] or ARGV[12]) then
  b.dirty = true -- whoever waits for room is to hear of it
end
return finish('joined', parent, child)
