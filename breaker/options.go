package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Defaults of [Options].
const (
	DefaultFailureThreshold   = 3
	DefaultOutageThreshold    = 10
	DefaultCooldown           = 5 * time.Minute
	DefaultCooldownMultiplier = 1.0
	DefaultCooldownJitter     = 0.1
	DefaultMaxCooldown        = time.Hour
	DefaultProbeTimeout       = 35 * time.Second
	DefaultRefreshInterval    = time.Second

	DefaultTimeout = 2 * time.Second
)

const (
	maxMultiplier      = 1000
	maxOutageThreshold = 100 // the breaker keeps the jobs of this many calls
)

// Options configure a [Breaker]. Only Destination is required. Instances that
// share a destination should have the same options: each acts by its own.
type Options struct {
	// Destination names what the breaker protects; instances with the same
	// Redis and destination share one breaker. [a-z0-9][a-z0-9-]{0,62}.
	Destination string

	// Namespace is the prefix of all keys and channels, so that two installations can
	// share a database. "" means "tidegate"; [a-z0-9][a-z0-9-]{0,30}. Operators reach the
	// breakers of another one by the methods of [Namespace].
	Namespace string

	// FailureThreshold is how many consecutive rate-limited answers open the
	// breaker. 0 means 3; at least 1.
	FailureThreshold int

	// OutageThreshold is how many consecutive calls of all instances open the breaker with
	// [CauseOutage] if they all ended in 5xx or without an answer, or all in 401, or all in
	// 403; see [Answered] and [Outcome.WithJob]. 0 means 10; negative: none do; at most 100.
	OutageThreshold int

	// Cooldown is how long it stays OPEN the first time. 0 means 5 minutes; at
	// least 1 ms.
	Cooldown time.Duration

	// CooldownMultiplier multiplies the cooldown for each failed probe, and for
	// each reopening in slow start. It falls back by one step each time that the
	// breaker has been CLOSED for as long as its last cooldown was. 0 means 1 (always
	// the same); 1 to 1000. 2 suits APIs that punish calls while limited.
	CooldownMultiplier float64

	// CooldownJitter is added at random to cooldowns that have grown, as a part of
	// them, so that breakers that opened together do not probe together. 0 means
	// 0.1, that is up to a tenth; negative none; at most 1. MaxCooldown holds.
	CooldownJitter float64

	// MaxCooldown is the longest cooldown. If the API asks for a longer wait, it is tested after
	// MaxCooldown; if it then asks for a wait that ends no earlier, that is kept, up to 24 hours.
	// 0 means 1 hour; at least Cooldown.
	MaxCooldown time.Duration

	// IgnoreHints leaves the durations given to [RateLimited] and the budgets
	// given to [Outcome.WithBudget] unused. By default a hint opens the breaker at
	// once, until the hinted time.
	IgnoreHints bool

	// Rate is a declared limit of all instances' calls to the destination, and KeyRate one of
	// the calls of each key. A call takes from all windows of both, or is refused. They cost
	// a Redis command per call, and no call is made while Redis is unavailable. Empty: none.
	Rate, KeyRate Rates

	// Limits are up to 8 limits that other destinations share by their names: a call takes from all windows of
	// all of them, as [Breaker.Draws] says, and from Rate and KeyRate, or is refused. All is one Redis command,
	// but on a Redis Cluster one for each limit: a process that dies between two of them leaves some of the cost
	// taken. No call is made while Redis is unavailable. Empty: none.
	Limits []NamedLimit

	// FleetConcurrency is how many calls to the destination all instances make at once at most,
	// keys included, and KeyConcurrency how many of them for each key. Each costs a Redis command
	// before and after the call, and no call is made while Redis is unavailable. A call
	// counts for up to ProbeTimeout: if its process dies, or it is neither reported nor released,
	// its slot is free after that. 0: no limit.
	FleetConcurrency, KeyConcurrency int

	// Reserve says for people what callers leave for more urgent ones by [Breaker.Leave], such as "high=20%": [Namespace.Read]
	// shows it. Default: "".
	Reserve string

	// MaxInFlight is how many calls this instance makes at once at most. The sum of
	// all instances is where a slow start ends; twice the sum is the budget below
	// which calls are metered. 0: the most that it has made so far.
	MaxInFlight int

	// NoLearning stops the breaker from learning limits that the API does not announce: how many calls it accepts in
	// which time, and how many at once. Once 429 without a hint have opened the breaker, or two with one within 25
	// hours, each call is counted in Redis and costs two scripts; calls are spaced as soon as a pace is known
	// (docs/adr/0059). With NoLearning the breaker learns only the pace of an API that spaces calls.
	NoLearning bool

	// NoEarlyTests leaves an opening by a limit without a hint OPEN for the whole cooldown. Without it such an opening is
	// tested within a second, and each next time when the API has refused for one and a half to two and a half times as long as at
	// the last test, at the roundest instant of that span; Cooldown is then the longest time between two tests, and
	// CooldownMultiplier counts for outages and credentials alone (docs/adr/0074).
	NoEarlyTests bool

	// ProbeTimeout is the longest wait for the probe: the lease of the one permit in
	// HALF_OPEN. It must be longer than a call can take, or two probes can overlap. A call in
	// any state counts as in flight for that long if its permit is neither reported nor
	// released, and for a moment longer in CLOSED. 0 means 35 seconds; at least 1 ms.
	ProbeTimeout time.Duration

	// Remote is for calls of other programs, whose permits any process reports (see [Permit.MarshalText]): Redis counts
	// each until it is reported or its lease ends, which costs a Redis command before and after it. What the options
	// declare is shown to operators only while no other instance is registered.
	Remote bool

	// Disabled keeps the answers to this instance's calls from opening the breaker:
	// rate-limited answers and budgets do not count, and no declared limit and no concurrency is
	// kept. An operator's
	// trip or force applies all the same, and so do openings by other instances that are not
	// disabled.
	Disabled bool

	// OperatorRate says that Rate is an operator's, for a time: it is kept by a disabled breaker, too, and no cost is
	// too high for it. A call above a sliding window is made while nothing of that is used.
	OperatorRate bool

	// Instance is this instance's name in the history, and must be unique. "" means
	// [InstanceName].
	Instance string

	// RefreshInterval is how often the state is read from Redis, and so the
	// longest time that a change can go unnoticed when the subscription is
	// broken. 0 means 1 second; at least 10 ms.
	RefreshInterval time.Duration

	// Timeout bounds the calls to Redis of a method whose context has no deadline, and of
	// [Breaker.Allow] in any case. While Redis is known to be away, methods do not wait for it: one
	// per RefreshInterval tries, and one per second at least. 0 means 2 seconds; at least 10 ms.
	Timeout time.Duration

	// Logger gets transitions (debug) and lost connections (warn). nil discards.
	Logger *slog.Logger

	// Judge returns the outcome of a call of [Breaker.Do]. nil means [Judge].
	Judge func(error) Outcome

	// OnEvent receives every transition of the destination's breaker and of its keys' breakers, whichever instance
	// caused it, once and in order, from one goroutine. Transitions before New are not reported. It may block: that
	// delays later events and Close, and nothing else. It must not call Close.
	OnEvent func(Event)

	// OnSlot is called when a call that this instance was refused because of a full
	// KeyConcurrency may start now: with its key. It must return at once.
	OnSlot func(key string)

	// FailClosed decides what Allow returns while Redis is unavailable and no limit is known: until Redis has
	// first answered after New, and in CLOSED in a slow start and for learned limits. With FailClosed that is an
	// error that wraps [ErrUnavailable], otherwise a permit. Redis is unavailable, too, if no connection of the
	// client's pool gets free within Timeout.
	//
	// Whatever FailClosed says, Allow returns that error where Rate, KeyRate, FleetConcurrency, KeyConcurrency or
	// Limits is set, with Remote, for a probe, and while the API has announced that few calls are left: no such
	// call is made without Redis. In every other case the last known state holds.
	FailClosed bool
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, string(DefaultNamespace))
	o.FailureThreshold = cmp.Or(o.FailureThreshold, DefaultFailureThreshold)
	o.OutageThreshold = cmp.Or(o.OutageThreshold, DefaultOutageThreshold)
	o.Cooldown = cmp.Or(o.Cooldown, DefaultCooldown)
	o.CooldownMultiplier = cmp.Or(o.CooldownMultiplier, DefaultCooldownMultiplier)
	o.MaxCooldown = cmp.Or(o.MaxCooldown, DefaultMaxCooldown)
	o.CooldownJitter = cmp.Or(o.CooldownJitter, DefaultCooldownJitter)
	if o.Judge == nil {
		o.Judge = Judge
	}
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, DefaultProbeTimeout)
	o.RefreshInterval = cmp.Or(o.RefreshInterval, DefaultRefreshInterval)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	for _, d := range []*time.Duration{&o.Cooldown, &o.MaxCooldown, &o.ProbeTimeout, &o.RefreshInterval, &o.Timeout} {
		*d = min(*d, longest)
	}
	o.Instance = strings.ReplaceAll(o.Instance, ",", ";") // commas separate the names in an incident
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// Validate returns all errors of the options, as [New] does, or nil.
func (o Options) Validate() error { return o.withDefaults().validate() }

// validate is Validate once the defaults are filled in.
func (o Options) validate() error {
	var errs []error
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, validDestination(o.Destination), Namespace(o.Namespace).Validate())
	check(o.FailureThreshold < 1, "FailureThreshold is %d: want at least 1", o.FailureThreshold)
	check(o.OutageThreshold > maxOutageThreshold, "OutageThreshold is %d: want at most %d", o.OutageThreshold, maxOutageThreshold)
	check(o.Cooldown < time.Millisecond, "Cooldown is %v: want at least 1ms", o.Cooldown)
	check(!(o.CooldownMultiplier >= 1 && o.CooldownMultiplier <= maxMultiplier), "CooldownMultiplier is %v: want 1 to %d", o.CooldownMultiplier, maxMultiplier) // also NaN
	check(!(o.CooldownJitter <= 1), "CooldownJitter is %v: want at most 1", o.CooldownJitter)                                                                   // also NaN
	if err := o.Rate.validate(); err != nil {
		errs = append(errs, fmt.Errorf("Rate: %w", err))
	}
	if err := o.KeyRate.validate(); err != nil {
		errs = append(errs, fmt.Errorf("KeyRate: %w", err))
	}
	if err := validLimits(o.Limits); err != nil {
		errs = append(errs, fmt.Errorf("Limits: %w", err))
	}
	check(o.FleetConcurrency < 0 || o.KeyConcurrency < 0, "FleetConcurrency is %d and KeyConcurrency %d: want 1 or more, or 0 for no limit", o.FleetConcurrency, o.KeyConcurrency)
	check(o.MaxInFlight < 0, "MaxInFlight is %d: want 1 or more, or 0 if it is not known", o.MaxInFlight)
	check(o.MaxCooldown < o.Cooldown, "MaxCooldown is %v, less than Cooldown (%v): raise it, or lower Cooldown", o.MaxCooldown, o.Cooldown)
	check(o.ProbeTimeout < time.Millisecond, "ProbeTimeout is %v: want at least 1ms, and longer than a call can take", o.ProbeTimeout)
	check(o.RefreshInterval < 10*time.Millisecond, "RefreshInterval is %v: want at least 10ms", o.RefreshInterval)
	check(o.Timeout < 10*time.Millisecond, "Timeout is %v: want at least 10ms", o.Timeout)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("breaker: options: %w", err)
	}
	return nil
}
