-- rate: declared limits. A limit is a list of up to 8 windows with spaces between them. A call
-- takes its cost from each window, or from none. Lengths and instants are µs.
--   calls/length:burst  slides: the generic cell rate algorithm, burst at once, then one each
--                       length / calls. A cost above the burst is granted while nothing is
--                       used, and leaves a debt
--   calls/length@zone   is fixed: calls between two boundaries of that zone's calendar
--
-- Stored is, by limit, what is used of it: "asked w1 w2 … last turn". asked is when a worker last
-- asked by it; w is the theoretical arrival time of a sliding window, and from:to:used of a fixed one.
-- A permit may be for a call that begins later: last is when the last such call begins, and turn until
-- when no further ones are granted, as a caller that cannot wait was refused.
-- While workers disagree on the limit, each of their limits counts all calls and lets through
-- its own workers' calls alone: together they keep the largest.

local declared_rate = { -- one table, as a script has 200 local variables at most
  KEPT = 60000000, -- µs that a limit is kept, and a window that is over
  LIMITS = 8,      -- limits of a name that are kept while workers disagree
  AHEAD = 2000000, -- µs from now that a permitted call begins at the latest
  lead = 0,        -- and at the earliest, as the caller asks; both 0 is at once
  within = 0,      -- and at the latest
}

-- window reads one window of a limit, and what is stored of it; '' is nothing. Returns nil if name
-- is not one.
local function window(name, stored)
  local calls, length, kind, more = string.match(name, '^(%d+)/(%d+)([:@])(.+)$')
  local w = { name = name, calls = number(calls), length = number(length) }
  if w.calls == 0 or w.length == 0 or kind == ':' and number(more) == 0 then
    return nil
  end
  if kind == ':' then
    w.burst, w.interval, w.at = tonumber(more), w.length / w.calls, number(stored)
  else
    local from, to, used = string.match(stored, '^(%d+):(%d+):(%d+)$')
    w.from, w.to, w.used = number(from), number(to), number(used)
  end
  return w
end

local function words(text)
  local out = {}
  for word in string.gmatch(text, '%S+') do
    out[#out + 1] = word
  end
  return out
end

-- windows returns the windows of a limit; nil if one is not valid.
local function windows(limit, stored)
  local out = {}
  stored = words(stored)
  for i, name in ipairs(words(limit)) do
    out[i] = window(name, stored[i] or '')
    if not out[i] then
      return nil
    end
  end
  return out
end

-- largest is the highest cost that a window can have.
local function largest(w)
  return math.max(w.burst or 0, w.calls)
end

-- read_limits returns the stored limits of a breaker's name, and deletes what is not one. After
-- the clock went back, waits keep their length.
local function read_limits(b)
  local limits, last = {}, 0
  local flat = redis.call('HGETALL', b.rates_key)
  for i = 1, #flat, 2 do
    local asked, state = string.match(flat[i + 1], '^(%d+) ?(.*)$')
    local all = windows(flat[i], state or '')
    if all then
      local more = words(state)
      limits[flat[i]] = { b = b, all = limits, asked = number(asked), windows = all,
        last = number(more[#all + 1]), turn = number(more[#all + 2]) }
      last = math.max(last, number(asked))
    else
      redis.call('HDEL', b.rates_key, flat[i])
    end
  end
  for _, limit in pairs(limits) do
    for _, w in ipairs(limit.windows) do
      if w.burst then
        w.at = math.min(w.at - math.max(0, last - now_us), now_us + 2 * largest(w) * w.interval + declared_rate.AHEAD)
      end
    end
    limit.last, limit.turn = math.min(limit.last, now_us + declared_rate.AHEAD), math.min(limit.turn, now_us + declared_rate.AHEAD)
    limit.asked = math.min(limit.asked, now_us)
  end
  return limits, last > now_us
end

-- used is how much of a window is used now.
local function used(w)
  if w.burst then
    return math.max(0, (w.at - now_us) / w.interval)
  end
  return now_us < w.to and w.used or 0
end

-- begin begins a limit that no worker has asked by: with what the other limits count.
local function begin(b, name, others)
  local limit = { b = b, all = others, windows = windows(name, ''), last = 0, turn = 0 }
  for _, other in pairs(others) do
    limit.last = math.max(limit.last, other.last)
  end
  for _, w in ipairs(limit.windows) do
    local most = 0
    for _, other in pairs(others) do
      for _, o in ipairs(other.windows) do
        if w.name == o.name and w.burst then
          most = math.max(most, used(o))
        elseif w.burst and o.burst then
          most = math.max(most, math.min(used(o), w.burst))
        elseif not w.burst and not o.burst and o.length == w.length and used(o) > 0 then
          most, w.from, w.to = math.max(most, o.used), o.from, o.to
        end
      end
    end
    if w.burst then
      w.at = now_us + most * w.interval
    else
      w.used = most
    end
    limit.changed = limit.changed or most > 0
  end
  return limit
end

-- turn begins the next fixed windows of a limit. bounds are "from to" of each as the instance
-- knows them, needed where the stored window is over. A window in which the clock went back
-- keeps its count. Returns false if they are of another time.
local function turn(limit, bounds)
  local at = 0
  bounds = words(bounds)
  for _, w in ipairs(limit.windows) do
    if not w.burst then
      local from, to = number(bounds[at + 1]), number(bounds[at + 2])
      at = at + 2
      if now_us < w.from or now_us >= w.to then
        if now_us < from or now_us >= to then
          return false
        end
        w.used = now_us < w.from and w.used or 0
        w.from, w.to = from, to
      end
    end
  end
  return true
end

-- limit_of returns the limit of a breaker's name that the caller asks by. It is to be written if
-- it has changed: what it inherits would begin anew each time, and waits that the clock has
-- moved would not end.
local function limit_of(b, name)
  local all, back = read_limits(b)
  local own = all[name] or begin(b, name, all)
  all[name] = own
  own.asked, own.changed = now_us, own.changed or back
  return own
end

-- in_window reports whether what was taken at an instant, µs, was taken from the present window.
local function in_window(w, at)
  return w.burst or at >= w.from
end

-- opens is when a fixed window's reserve is for all: in its last tenth, of at most a minute.
function declared_rate.opens(w)
  return w.to - math.min((w.to - w.from) / 10, 60000000)
end

-- wait_for is how long, in µs, a window has not so much, and whether what it has is reserved. have is how
-- much of it the caller has taken already.
local function wait_for(w, cost, have)
  if cost <= have then
    return 0
  elseif w.burst then
    local used = math.max(w.at - have * w.interval, now_us) - now_us
    local wait = used - math.max(0, w.burst - reserved(w.burst) - cost) * w.interval
    return wait, wait > 0 and used <= math.max(0, w.burst - cost) * w.interval
  end
  local free, opens = w.calls - w.used + have - cost, declared_rate.opens(w)
  if free >= 0 and free < reserved(w.calls) and now_us < opens then
    return opens - now_us, true
  end
  return free < 0 and w.to - now_us or 0
end

-- add takes n from a window for a call that begins at an instant, or gives -n back to it. most is how
-- much may be used of it then; more than twice what it can have would outlast what read_limits believes.
local function add(w, n, most, start)
  if w.burst then
    w.at = math.min(math.max(w.at, start) + n * w.interval, start + math.min(math.max(most, n), 2 * largest(w)) * w.interval)
  else
    w.used = math.max(0, w.used + n)
  end
end

local function state_of(w)
  return w.burst and int(math.floor(w.at)) or int(w.from) .. ':' .. int(w.to) .. ':' .. int(w.used)
end

-- write_limits stores the limits that the caller's one was read with, without the ones that no
-- worker asks by any more.
local function write_limits(own)
  prepare()
  local longest, kept, count, oldest = 0, {}, 0, nil
  for name, limit in pairs(own.all) do
    local over, length, state = 0, 0, { int(limit.asked) }
    for i, w in ipairs(limit.windows) do
      over, length = math.max(over, w.burst and w.at or w.to), math.max(length, w.length)
      state[i + 1] = state_of(w)
    end
    if math.max(limit.last + declared_rate.AHEAD, limit.turn) > now_us then
      state[#state + 1], state[#state + 2] = int(limit.last), int(limit.turn)
    end
    if limit.asked < now_us - declared_rate.KEPT - length then
      redis.call('HDEL', own.b.rates_key, name)
    else
      kept[#kept + 1], kept[#kept + 2], count = name, table.concat(state, ' '), count + 1
      longest = math.max(longest, over - now_us)
      if limit ~= own and (not oldest or limit.asked < own.all[oldest].asked) then
        oldest = name
      end
    end
  end
  redis.call('HSET', own.b.rates_key, unpack(kept))
  if count > declared_rate.LIMITS then
    redis.call('HDEL', own.b.rates_key, oldest)
  end
  redis.call('PEXPIRE', own.b.rates_key, int(math.ceil((longest + declared_rate.KEPT) / 1000)))
end

-- start_of returns when a call may begin by all windows of limits, each with its cost: lead µs from now
-- at the earliest, and within at the latest; else nil, in how many µs to ask again, the owner of the limit
-- and the window. A fixed window grants nothing for the next one.
function declared_rate.start_of(limits)
  local start, owner, window = now_us + (#limits > 0 and declared_rate.lead or 0), nil, ''
  local next_one = nil -- fixed window
  for _, limit in ipairs(limits) do
    for _, w in ipairs(limit.windows) do
      local wait, reserve = wait_for(w, limit.cost, in_window(w, limit.at) and limit.have or 0)
      if wait > 0 and not w.burst then
        wait = wait + declared_rate.within
      end
      if now_us + wait > start then
        start, owner, window = now_us + wait, limit.b, w.name .. (reserve and ' reserved' or '')
      end
    end
  end
  if start > now_us + declared_rate.within then
    return nil, start - declared_rate.within - now_us, owner, window
  end
  for _, limit in ipairs(limits) do
    for _, w in ipairs(limit.windows) do
      if not w.burst and start >= w.to and (not next_one or w.to > next_one.to) then
        next_one, owner = w, limit.b
      end
    end
  end
  if next_one then
    return nil, math.max(1, next_one.to - now_us), owner, next_one.name
  end
  return start
end

-- ask_limits returns the limits of the destination and of the key (false or nil: not asked), and named ones of
-- limits.lua, if all their windows have the cost, and when the call may begin, as start_of; else nil, the result of
-- the script, the name and what is added. have and key_have are how much the caller has taken of them
-- already, at an instant, µs.
local function ask_limits(parent, child, cost, have, key_have, at, drawn)
  local limits = {}
  declared_rate.within = math.min(number(named.within), declared_rate.AHEAD)
  declared_rate.lead = math.min(number(named.lead), declared_rate.within)
  local asked = { { parent, given('rates'), given('bounds'), cost, have, at }, { child, given('key_rates'), given('key_bounds'), cost, key_have, at } }
  for _, l in ipairs(drawn) do
    asked[#asked + 1] = { l, l.rates, l.bounds, l.cost, l.have, l.at }
  end
  for _, ask in ipairs(asked) do
    local limit = ask[1] and ask[2] ~= '' and limit_of(ask[1], ask[2])
    if limit then
      if not turn(limit, ask[3]) then
        return nil, 'bounds', ask[1].name, ''
      end
      limits[#limits + 1] = limit
      limit.cost, limit.have, limit.at = ask[4], ask[5], ask[6]
    end
  end
  for _, limit in ipairs(limits) do
    local ahead = limit.turn <= now_us
    for _, w in ipairs(limit.windows) do
      ahead = ahead and reserved(w.burst or 0) == 0 -- what is reserved would be taken ahead
    end
    if not ahead then
      declared_rate.lead, declared_rate.within = 0, 0
    end
  end
  local start, wait, owner, window = declared_rate.start_of(limits)
  if start then
    return limits, start
  end
  for _, limit in ipairs(limits) do
    if given('within') == '' and limit.last > now_us then
      limit.turn, limit.changed = now_us + math.min(wait, declared_rate.AHEAD / 2) + declared_rate.AHEAD / 2, true
    end
    if limit.changed then
      write_limits(limit)
    end
  end
  return nil, 'denied', owner.name, 'rate ' .. int(math.ceil(wait / 1000)) .. ' ' .. window .. (owner.label and ' limit=' .. owner.label or '')
end

-- take_limits takes the cost of all windows, also of other workers' limits, without what
-- the caller has taken already, for a call that begins at start. write_limits stores that.
local function take_limits(limits, start)
  for _, own in ipairs(limits) do
    for _, limit in pairs(own.all) do
      for _, w in ipairs(limit.windows) do
        add(w, own.cost - (in_window(w, own.at) and own.have or 0), limit == own and 2 * largest(w) or w.burst, start)
      end
      limit.last = math.max(limit.last, start > now_us and start or 0)
    end
    own.have = 0
  end
end

-- give_back gives n back to the sliding windows of a limit, for calls whose last was to begin at an
-- instant. Calls that begin later were granted as if these were made: a window with a short burst gives
-- nothing back then, and another one what the last of them leaves.
function declared_rate.give_back(limit, n, at)
  local last, spaced = limit.last, at >= limit.last
  for _, w in ipairs(limit.windows) do
    if w.burst then
      local least = 0
      if at < last and last + w.interval > now_us then
        least = w.burst * w.interval < declared_rate.AHEAD and w.at or math.min(w.at, last + w.interval)
      end
      w.at = math.max(math.max(w.at, now_us) - n * w.interval, least)
      if spaced and w.burst == 1 then -- else another call may begin as late
        limit.last = math.max(0, math.min(limit.last, w.at - w.interval))
      end
    end
  end
end

-- correct takes n more for a call that was permitted at an instant, µs, or gives -n back: of the
-- limit by which its worker asked, and more of other workers' limits, too. More than a window
-- has is a debt, of at most its capacity. unused is of a call that was not made. Returns whether the
-- limit is stored.
local function correct(b, name, n, at, unused)
  local own = read_limits(b)[name]
  if not own then
    return false
  end
  for _, limit in pairs(n > 0 and own.all or { own }) do
    for _, w in ipairs(limit.windows) do
      if in_window(w, at) and not (unused and w.burst) then
        add(w, n, 2 * largest(w), now_us)
      end
    end
  end
  if unused then
    declared_rate.give_back(own, -n, at)
  end
  write_limits(own)
  return true
end

-- correct_taken makes what a permit has taken of the limits that its worker asked by the true cost.
-- Returns whether one of them is stored.
local function correct_taken(parent, child, true_cost)
  local stored = false
  for _, b in ipairs({ parent, child }) do
    local limit = given(b.key and 'key_rates' or 'rates')
    local cost = number(b.key and named.key_cost or named.cost)
    if limit ~= '' and correct(b, limit, true_cost - cost, number(named.at), true_cost == 0) then
      stored = true
    end
  end
  return stored
end
