-- Ends jobs of one queue as expired that wait, for whatever it is.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] who   ARGV[3] why ('' = nothing to say)
-- ARGV[4] states in which to act, as ',pending,retry,' ('' = all)
-- ARGV[5...] ids
-- returns per job: what happened, its state before; see cancel.lua
also_when_full()
local out = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local state, verdict = redis.call('HGET', key, 'state'), 0
  if not state then
    state = '-'
  elseif ARGV[4] ~= '' and not string.find(ARGV[4], ',' .. state .. ',', 1, true) then
    verdict = 3
  elseif waits[state] then
    leave(id, key, state)
    expire(id, key, state, ARGV[3] ~= '' and ARGV[3] or 'by hand, while ' .. status_of(state), ARGV[2])
    verdict = 1
  end
  out[#out + 1] = verdict
  out[#out + 1] = state
end
return out
