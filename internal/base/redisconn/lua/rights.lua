-- Tells what the user who asks may do.
-- KEYS: none
-- ARGV: command lines, words separated by spaces
-- Returns for each 1 if it is allowed, or Redis cannot tell; else 0.
local answers = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do
    words[#words + 1] = word
  end
  local known, allowed = false, false
  if redis.acl_check_cmd then
    known, allowed = pcall(redis.acl_check_cmd, unpack(words))
  end
  answers[i] = (known and not allowed) and 0 or 1
end
return answers
