-- Returns jobs to the head of the queue that were missing in the whole pending list, if they
-- have not moved meanwhile and are not near one of its ends; removes the field tombstone from
-- jobs without one.
--
-- KEYS[1] pending
-- ARGV[4] how far to look from both ends   ARGV[5...] id, its mark from look.lua
-- returns found
local pending_key = KEYS[1]
local reach = ARGV[4]
local function in_list(id)
  return redis.call('LPOS', pending_key, id, 'MAXLEN', reach)
    or redis.call('LPOS', pending_key, id, 'RANK', -1, 'MAXLEN', reach)
end
for i = 5, #ARGV, 2 do
  local id = ARGV[i]
  local key = task(id)
  if mark_of(key) == ARGV[i + 1] and not in_list(id) then
    if redis.call('HGET', key, 'state') == 'pending' then
      report('lost', id)
      if not dry then
        redis.call('HDEL', key, 'tombstone')
        to_head(id, key, 'was in no index')
      end
    else
      report('tombstone_stale', id)
      if not dry then
        redis.call('HDEL', key, 'tombstone')
      end
    end
  end
end
return found
