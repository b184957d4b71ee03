-- Precedes the scripts that move jobs from one queue to another, after the prelude. See
-- move.go for the steps.

-- A digest of all that a job's record holds, and its fields and values in turn. The field
-- `tombstone` is left out: it belongs to the pending list.
local function snapshot(id, key)
  local fields, parts = redis.call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    if fields[i] ~= 'tombstone' then
      parts[#parts + 1] = #fields[i] .. ':' .. fields[i] .. #fields[i + 1] .. ':' .. fields[i + 1]
    end
  end
  table.sort(parts)
  parts[#parts + 1] = int(redis.call('SCARD', ours .. 'children:' .. id))
  return redis.sha1hex(table.concat(parts)), fields
end

local function leave_batch(id, batch)
  if batch then
    redis.call('ZREM', ours .. 'batch:' .. batch, id)
    if redis.call('EXISTS', ours .. 'batch:' .. batch) == 0 then
      redis.call('ZREM', ours .. 'batches', batch)
    end
  end
end
