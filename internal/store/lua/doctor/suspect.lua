-- Describes jobs that were missing in the pending list, so that a later call can detect
-- whether they have moved since.
--
-- KEYS[1] pending
-- ARGV[4...] ids
-- returns per id a text, '' if it need not be in the list any more
local out = {}
for i = 4, #ARGV do
  local f = redis.call('HMGET', task(ARGV[i]), 'state', 'tombstone', 'pending_since', 'started_at', 'run', 'versions')
  out[i - 3] = ''
  if f[1] == 'pending' or (f[1] and f[2]) then
    out[i - 3] = f[1] .. (f[2] and ' g ' or ' - ') .. table.concat({ f[3] or '', f[4] or '', f[5] or '', f[6] or '' }, ' ')
  end
end
return out
