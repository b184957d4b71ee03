-- arguments: KEYS and ARGV of every script by name, and what all of them return. It stands
-- first in each script; which files follow is in scripts.go.
--
-- A destination has a breaker, and each of its keys may have one under it. A script acts on
-- one name: the destination ("D"), or a key of it ("D/K"), and then on both.
--
-- KEYS (in the slot of {destination})
--   1  hash: the destination's breaker, in fields that a person can read
--   2  hash: breakers that instances must know of (all but plainly CLOSED ones),
--      name -> record as JSON, and beside them (no name begins with a colon)
--        :version     the highest revision that a breaker of the destination ever had
--        :transition  the revision of the last transition
--        :capacity    how many calls the instances make at once
--        :caps        calls in flight of the fleet, and of each key, as the instances have them
--                     configured: "5 2", 0 is no limit
--        :rates       declared limit of the destination, as they have it configured, and
--        :key-rates   the limit of each key; '' is none. See rate.lua
--        :reserve     what calls leave for more urgent ones, for people
--        :limits      named limits of the destination, likewise: "name;unit;cap;windows", with tabs between them
--        :floor       the highest revision that KEYS[5] has forgotten
--        :relisting   how far the repair of KEYS[5] has come, if it was lost
--        :origin      id of this data: channels are common to all databases of a server,
--                     so messages carry it (docs/adr/0019)
--   3  list: transitions of all of the destination's breakers as JSON, newest first, capped
--   4  sorted set: ids of reports already counted, by time
--   5  sorted set: names by the revision of their last change
--   6  sorted set: names of keys by the instant, ms, from which on they wait for nothing but
--      the next call
--   7  hash: instances, id -> "capacity expiry", and " remote" if others make its calls
--   8  hash: what is used of each declared limit that workers ask by, see rate.lua
--   9  list: transitions of the destination's own breaker
--  10  list: its incidents that are over
--  11  sorted set: its metered calls in flight, by the end of their lease, see metering.lua
--  12  hash: its calls in flight that are not metered, instance -> "sequence count"
--  13  stamp: changes with :version, :capacity and :origin. Instances read it once a second,
--      the stamps of many destinations by one command
--  14  sorted set: instances that wait for a slot of a full cap, with the per cent they leave, by when they last asked
--  15… of a key: hash, transitions, incidents, metered calls, other calls, waiting instances,
--      declared limits
--  and at the end four of each named limit, in the slot of {limit:NAME}, see limits.lua
-- ARGV
--   1  clock: "" means Redis TIME; tests pass an instant in microseconds
--   2  name of the destination
--   3  key, "" for the destination's own breaker
--   4  channel that changes are published on
--   5  name of the caller (an instance or an operator), for the history
--   6  id of the instance, "" for an operator
--   7  cooldown, ms
--   8… what the script itself takes. What acquire, done, swap, release and join take is named: name,
--      value, name, value …; what is '' or 0 is left out
-- Returns (every script but snapshot and register) one text of seven lines: result, now in µs, version,
--   name of the breaker that decided, what is added, record, record of the key ('' without). Of a list
--   clients would allocate each line by itself

local NOTCLOSED, EVENTS, REPORTS, CHANGES = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local IDLE, INSTANCES, STAMP = KEYS[6], KEYS[7], KEYS[13]
local PLACES = { hash = 1, history = 9, incidents = 10, inflight = 11, joined = 12, waiting = 14, rates = 8 }
local KEY_PLACES = { hash = 15, history = 16, incidents = 17, inflight = 18, joined = 19, waiting = 20, rates = 21 }
local VERSION, TRANSITION, CAPACITY, FLOOR, ORIGIN = ':version', ':transition', ':capacity', ':floor', ':origin'
local CAPS, RATES, KEY_RATES, LIMITS, RESERVE = ':caps', ':rates', ':key-rates', ':limits', ':reserve'

local CLOCK, DESTINATION, KEY, CHANNEL, CALLER, INSTANCE = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local COOLDOWN = tonumber(ARGV[7])

local now_us, now                    -- Redis's clock: µs, and ms with a fraction
local version, transitioned, capacity, caps -- of the destination, as KEYS[2] has them
