-- named: what the script itself takes, by name.

local named = {}
for i = 8, #ARGV, 2 do
  named[ARGV[i]] = ARGV[i + 1]
end

-- given is the text of that name, '' if there is none.
local function given(name)
  return named[name] or ''
end

-- reserved is how many of a number of calls the caller, or a caller that leaves a given part in per cent, leaves to more
-- urgent ones, but never all.
local function reserved(calls, leaves)
  return math.max(0, math.min(math.ceil((tonumber(leaves or named.leave) or 0) * calls / 100), calls - 1))
end
