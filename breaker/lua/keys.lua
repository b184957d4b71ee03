-- keys: a limit that all keys of a destination meet together.

-- of_all_keys reports whether the destination's breaker b counts a refusal under a key, of which the
-- API does not say whose limit it is: near the limit that b has learned, and if it was the call
-- that shows this. That call is made, alone, when calls of as many keys in a row were refused as
-- refusals open a breaker; a cooldown after the last one at the earliest.
local function of_all_keys(b, answer)
  if not LEARN or b.state ~= 'CLOSED' or b.forced ~= '' or b.metered > 0 or answer.threshold == 0 or answer.hint > 0 then
    return false
  elseif b.confirming > 0 then
    return b.probe_token == answer.permit
  elseif b.learned_calls > 0 and b.round_accepted >= .9 * b.learned_calls then
    return true
  elseif b.ramp > 0 or now < b.round_confirmed + cooldown(b) or not answer.first_time() or not in_a_row(b, '429', KEY) then
    return false
  end
  b.streak_limit = answer.threshold
  if b.streak >= answer.threshold then
    clear_streak(b)
    b.learned_since = b.learned_since > 0 and b.learned_since or math.floor(now)
    ask_again(b, slow_start_end())
    few_left(b)
  end
  return false
end
