-- Reads what a list shows of a job in one step.
--
-- KEYS[1] task hash
-- ARGV[1] outline   ARGV[2...] other fields
-- returns their values; the message in place of an outline that is not there, and
--   of a response body the first 4 KiB, after the headers of a response of the gateway
local key = KEYS[1]
local values = redis.call('HMGET', key, unpack(ARGV))
values[1] = values[1] or redis.call('HGET', key, 'msg')
for i = 2, #ARGV do
  local value = values[i]
  if ARGV[i] == 'response_body' and value and #value > 4096 then
    local _, head = value:find('\n\n', 1, true)
    local cut = 4096 + (value:byte(1) == 0 and head or 0)
    local least = cut - 4
    while cut > least and value:byte(cut + 1) >= 0x80 and value:byte(cut + 1) < 0xC0 do -- within a character of UTF-8
      cut = cut - 1
    end
    values[i] = value:sub(1, cut)
  end
end
return values
