-- json: numbers and objects as text.

-- int is a whole number. Lua's own conversion and cjson keep 14 digits; a generation has 16.
local function int(n)
  return string.format('%.0f', n)
end

-- number reads what no breaker can have written (not a number, negative, past 2^53) as 0, so that
-- a damaged field cannot hold a breaker open for ever.
local function number(text)
  local n = tonumber(text or '')
  if not n or n ~= n or n < 0 or n > 9007199254740991 then
    return 0
  end
  return n
end

-- json is an object of name, value, name, value …; values of '' and 0 are left out.
local function json(fields)
  local out = {}
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if value ~= '' and value ~= 0 then
      out[#out + 1] = '"' .. name .. '":' .. (type(value) == 'number' and int(value) or cjson.encode(value))
    end
  end
  return '{' .. table.concat(out, ',') .. '}'
end
