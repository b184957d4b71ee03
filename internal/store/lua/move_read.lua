-- Reads waiting jobs that are to be moved.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] bytes of records after which to stop   ARGV[3...] ids
-- returns per job {digest, field, value, ...}, {} for a job that does not wait; fewer
--   than ARGV has ids where the records are large
local most = tonumber(ARGV[2])
local bytes, out = 0, {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local key = task(id)
  local job = {}
  if waits[redis.call('HGET', key, 'state') or ''] then
    local digest, fields = snapshot(id, key)
    job[1] = digest
    for _, value in ipairs(fields) do
      job[#job + 1] = value
      bytes = bytes + #value
    end
  end
  out[#out + 1] = job
  if bytes >= most then
    break
  end
end
return out
