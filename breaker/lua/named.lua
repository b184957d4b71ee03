-- named: what the script itself takes, by name.

local named = {}
for i = 8, #ARGV, 2 do
  named[ARGV[i]] = ARGV[i + 1]
end

-- given is the text of that name, '' if there is none.
local function given(name)
  return named[name] or ''
end
