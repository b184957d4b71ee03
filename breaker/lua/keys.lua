-- keys: a limit that all keys of a destination meet together.

-- of_all_keys reports whether the destination's breaker b counts a refusal under a key, of which the
-- API does not say whose limit it is: near the limit that b has learned, and if a guess holds. When
-- calls of three keys in a row were refused, the destination makes its calls one at a time. If none
-- has succeeded for an eighth of the cooldown, and the next is refused, too, the limit is its own; the
-- first other answer shows that it is the keys', or that a window of the API has begun anew.
local function of_all_keys(b, child, answer)
  local guess = RAMP_LIMIT + 1 -- the value of confirming
  if not LEARN or b.state ~= 'CLOSED' or b.forced ~= '' or b.metered > 0 or answer.threshold == 0 or answer.hint > 0 then
    return false
  elseif b.confirming == guess then
    if b.streak_of ~= '429' then
      learn.wrong_guess(b)
    end
    local holds = b.probe_token == answer.permit and now >= b.guess_since + cooldown(b) / 8
    if holds then
      b.guess_since, b.guess_after = 0, 0
    end
    return holds
  elseif b.confirming > 0 then
    return b.probe_token == answer.permit
  end
  local near = b.learned_gap > 0 and b.round_used >= .9 * b.learned_length / b.learned_gap
  if child.state ~= 'CLOSED' or not near and now < b.guess_after or not answer.first_time() or not in_a_row(b, '429', KEY) then
    return false
  elseif near and b.streak >= 2 then
    return true
  end
  b.streak_limit = math.max(3, answer.threshold)
  if b.streak >= b.streak_limit then
    if b.learned_since == 0 then
      learn.begin(b)
    end
    learn.ask_again(b, guess)
    b.guess_since = math.floor(now)
  end
  return false
end
