-- incident: what happens from a breaker's opening to its closing.

local TOOK_PART = 50 -- instances named in an incident

local function begin_incident(b, wasted)
  b.incident, b.opened_at, b.probes, b.rescheduled, b.instances = '', math.floor(now), 0, 0, ''
  b.wasted, b.permanent = wasted, 0
end

-- took_part adds the calling instance to the incident.
local function took_part(b)
  if INSTANCE == '' or string.find(',' .. b.instances .. ',', ',' .. CALLER .. ',', 1, true) then
    return
  end
  local _, commas = string.gsub(b.instances, ',', ',')
  if commas < TOOK_PART - 1 then
    b.instances = b.instances == '' and CALLER or b.instances .. ',' .. CALLER
    b.dirty = true
  end
end

-- incident returns the incident as JSON. b.opened has its reason and the name of the operator
-- that opened it.
local function incident(b, ended, by)
  return json({
    'id', b.incident, 'name', b.name, 'started', b.opened_at, 'ended', ended,
    'cause', b.incident_cause, 'ended_by', by, 'reason', b.opened[1], 'by', b.opened[2],
    'probes', b.probes, 'wasted', b.wasted, 'rescheduled', b.rescheduled, 'instances', b.instances,
    'permanent', b.permanent, 'missing', b.missing,
  })
end

local function end_incident(b)
  b.incident, b.incident_cause, b.cause, b.instances, b.permanent, b.credentials, b.missing = '', '', '', '', 0, '', 0
  b.opened_at, b.probes, b.wasted, b.rescheduled = 0, 0, 0, 0
  if b.forced == '' then
    b.reason, b.tripped_by = '', ''
  end
end
