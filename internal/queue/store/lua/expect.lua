-- Keeps the hash of a token that the request of a call is about to carry. Tokens of earlier calls of the same attempt count
-- too, the last three of them: a call whose worker died may have reached the API.
--
-- KEYS[1] task hash
-- ARGV[1] queue   ARGV[2] the run that makes the call   ARGV[3] hash   ARGV[4] attempt   ARGV[5] terms: see fail_outside
-- returns 1, or 0 if that run does not have the job any more
local key = KEYS[1]
local run, hash, attempt, terms = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local f = redis.call('HMGET', key, 'run', 'callback', 'state', 'early')
if f[1] ~= run or f[3] ~= 'active' then
  return 0
end
allow_when_full()
local before, hashes = string.match(f[2] or '', '^(%d+)(.*)$')
local earlier = before == attempt and string.match(hashes, '^ %S+ ?%S* ?%S*') or ''
if before ~= attempt and string.match(f[4] or '', '^%a+') == 'failed' then
  redis.call('HDEL', key, 'early') -- of the attempt before
end
redis.call('HSET', key, 'callback', attempt .. ' ' .. hash .. earlier, 'terms', terms)
return 1
