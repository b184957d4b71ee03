-- outage: calls in a row that fail alike.

-- in_a_row counts a call of a job or a key that ended in of, and returns false if the streak has
-- counted one of it.
local function in_a_row(b, of, id)
  if b.streak_of ~= of then
    clear_streak(b)
    b.streak_of, b.streak_id = of, math.max(version + 1, now_us)
  end
  if id ~= '' then
    if string.find(',' .. b.streak_jobs .. ',', ',' .. id .. ',', 1, true) then
      return false
    end
    b.streak_jobs = b.streak_jobs == '' and id or b.streak_jobs .. ',' .. id
  end
  b.streak, b.dirty = b.streak + 1, true
  return true
end

-- count_outage counts a call of the class answer.outage in a CLOSED breaker, and returns true if
-- that opens it. In the slow start after an outage fewer calls in a row do: as many as may be in
-- flight. But none of the last 20 jobs that did so does it again: that is the job's fault, unless
-- it is a 503 while the limiter's pace is looked for.
local function count_outage(b, answer)
  if not in_a_row(b, answer.outage, answer.job) then
    return false
  end
  local enough = answer.outage_threshold
  local slow = b.ramp > 0 and b.outage == answer.outage and (answer.busy or not pace.on(b))
  if slow and (answer.job == '' or pace.on(b) or not string.find(',' .. b.outage_jobs .. ',', ',' .. answer.job .. ',', 1, true)) then
    enough = math.min(enough, b.ramp)
  end
  if b.streak < enough then
    b.streak_limit = enough
    return false
  end
  if answer.busy and pace.refused(b, slow_start_end() <= 1) then
    clear_streak(b)
    b.outage_id = math.max(version + 1, now_us) -- for workers the job's call is of an outage
    return false
  end
  open_by_answer(b, 'outage', 0, answer.outage == 'down' and not answer.busy) -- 503 may be a limiter's
  b.outage, b.outage_id = answer.outage, math.max(version + 1, now_us)
  local reopened = slow and b.outage_jobs .. (answer.job == '' and '' or ',' .. answer.job) or ''
  b.outage_jobs = string.match(reopened, string.rep(',[^,]+', 20) .. '$') or reopened
  return true
end
