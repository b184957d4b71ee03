-- Moves pending jobs behind the held jobs of their keys; the keys take turns from then on.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] how many at most
-- ARGV[3...] id and key of the next jobs by KEY_BY, the next one first: those are sorted that are
--   still the next. None: by the keys of their records
-- returns {how many were sorted, 1 if there are more}
local pending_key = KEYS[1]
local n, by_id = tonumber(ARGV[2]), nil
if #ARGV > 2 then
  local next_ids = redis.call('LRANGE', pending_key, -n, -1)
  n, by_id = 0, {}
  for i = 3, #ARGV, 2 do
    if next_ids[#next_ids - n] ~= ARGV[i] then
      break
    end
    by_id[ARGV[i]] = ARGV[i + 1]
    n = n + 1
  end
end
if n > 0 then
  n = sort_pending(n, by_id)
end
return { n, redis.call('EXISTS', pending_key) }
