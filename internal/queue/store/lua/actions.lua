-- Precedes the scripts of actions, after the prelude: actions that an operator requests of
-- jobs of one queue.
--
-- KEYS[1] pending
-- ARGV[1] queue   ARGV[2] by: the operator   ARGV[3] why ('' = not said)
-- ARGV[4] states in which to act, as ',pending,retry,' ('' = all)   ARGV[5...] ids
-- returns per job: the effect (store.Effect), its state before ('-' if it does not exist)
local by, why, states = ARGV[2], ARGV[3], ARGV[4]
local first_id, last_id = 5, #ARGV
local edit -- of edit.lua: changes the job of ARGV[i], and returns what its history says of that; nil if it has changed
local REFUSED, DONE, REQUESTED, SKIPPED, ORPHAN, TOO_LATE, STUCK, REPLACED, CHANGED = 0, 1, 2, 3, 4, 5, 7, 8, 9

-- Calls act(id, key, state, fields, i) for each job in one of the wanted states, the id in ARGV[i]; fields are
-- state and those in names. act returns the effect and, where it differs, the state to
-- report.
local function act_on_each(names, act)
  allow_when_full()
  local out = {}
  for i = first_id, last_id do
    local id = ARGV[i]
    local key = task(id)
    local fields = redis.call('HMGET', key, 'state', unpack(names))
    local state = fields[1]
    local effect, instead = REFUSED, nil
    if not state then
      state = '-'
    elseif states ~= '' and not string.find(states, ',' .. state .. ',', 1, true) then
      effect = SKIPPED
    else
      effect, instead = act(id, key, state, fields, i)
    end
    out[#out + 1] = effect
    out[#out + 1] = instead or state
  end
  return out
end

-- Expires an overdue waiting job before the action.
local function expire_if_due(id, key, state, expires_at)
  if not waits[state] or not expires_at or tonumber(expires_at) > now then
    return false
  end
  take_out(id, key, state)
  expire(id, key, state)
  return true
end

-- Requests an action of a running job. The channel notifies its worker, which also reads the
-- set now and then.
local function request(id, key, action)
  redis.call('HSET', key, 'action', action, 'action_by', by)
  if why ~= '' then
    redis.call('HSET', key, 'action_reason', why)
  end
  redis.call('SADD', ours .. 'actions', id)
  redis.call('PUBLISH', namespace .. ':actions', queue .. ' ' .. id .. ' ' .. action)
end
