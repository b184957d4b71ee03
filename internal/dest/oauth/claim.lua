-- Reads the tokens of a key and, if they are due for renewal, acquires the lease for it.
--
-- KEYS[1] record, HASH: tokens (encrypted), access (hash of the access token), refresh (hash of
--         the refresh token), seed (hash of the refresh token of the file that refresh comes
--         from), before (the seeds before it, the one that was refused too), seeded (ms, when
--         seed was taken), version,
--         until (ms, end of the access token), due (ms, when it is renewed), refused (hash of
--         an access token), problem, problem_of, problem_until (ms)
-- KEYS[2] lease
-- ARGV[1] holder of the lease   ARGV[2] its length in ms
-- ARGV[3] hash of the refresh token of the file; without a file the hash of the client
-- ARGV[4] hash of the access token that the API has refused, or ''
-- ARGV[5] hash of the client   ARGV[6] ms for which a seed that was replaced is ignored
-- ARGV[7] version of the record whose tokens the process cannot decrypt, or ''
-- returns {'1' if the lease was acquired, why the renewal is due ('' = it is not; 'seed' = the
--         file has another refresh token, 'refused', 'time'), tokens, version, before of the next,
--         ms to until, ms to due, problem, ms to problem_until}; ms are '' where there is none
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local r = redis.call('HMGET', KEYS[1], 'tokens', 'access', 'refresh', 'seed', 'before', 'seeded',
  'version', 'until', 'due', 'refused', 'problem', 'problem_of', 'problem_until')
local tokens, access, refresh, seed, before, seeded = r[1], r[2], r[3], r[4], r[5], r[6]

local function left(at)
  if not at or at == '' then
    return ''
  end
  return string.format('%.0f', tonumber(at) - now)
end

local replaced = before and string.find(before, ARGV[3], 1, true) and now < (tonumber(seeded) or 0) + tonumber(ARGV[6])
local reseed = ARGV[3] ~= (seed or '') and not replaced
local of = ((reseed or not refresh or refresh == '') and ARGV[3] or refresh) .. ':' .. ARGV[5]
local due = ''
if reseed then
  due = 'seed'
elseif access and (access == ARGV[4] or access == r[10]) then
  due = 'refused'
elseif not tokens or ARGV[7] ~= '' and ARGV[7] == r[7] or r[9] and r[9] ~= '' and now >= tonumber(r[9]) then
  due = 'time'
end
local granted, problem, problem_left = false, '', ''
if due ~= '' then
  if r[11] and r[12] == of and (r[13] == '' or now < tonumber(r[13])) then
    problem, problem_left = r[11], left(r[13])
  elseif redis.call('PTTL', KEYS[2]) > tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[2], ARGV[2]) -- the clock went back
  elseif redis.call('EXISTS', KEYS[2]) == 0 then
    granted = true
    -- A full Redis takes the rest of a script that began by freeing memory.
    redis.call('DEL', KEYS[2])
    redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
  end
  if access == ARGV[4] and access ~= r[10] then
    redis.call('HDEL', KEYS[1], 'refused')
    redis.call('HSET', KEYS[1], 'refused', access)
  end
end
-- The first part of problem_of is a seed, if its refresh token was refused at once.
local next_before = (seed or '') .. ' ' .. string.match(r[12] or '', '^[^:]*')
return {granted and '1' or '', due, tokens or '', r[7] or '', next_before, left(r[8]), left(r[9]),
  problem, problem_left}
