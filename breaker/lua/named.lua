-- named: what the script itself takes, by name.

local named = {}
for i = 8, #ARGV, 2 do
  named[ARGV[i]] = ARGV[i + 1]
end

-- given is the text of that name, '' if there is none.
local function given(name)
  return named[name] or ''
end

-- reserved is how many of so many calls the caller leaves to more urgent ones: leave per cent, but never all.
local function reserved(calls)
  return math.max(0, math.min(math.ceil((tonumber(named.leave) or 0) * calls / 100), calls - 1))
end
