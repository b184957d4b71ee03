package jobs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Trigger is a kind of failure that a retry policy can retry.
type Trigger string

// The triggers of a retry.
const (
	// OnTimeout: the call took longer than the destination's timeout.
	OnTimeout Trigger = "timeout"
	// OnFailure: the call failed: refused, reset, or answered with an error.
	OnFailure Trigger = "failure"
	// OnExplicit: the publisher returned Fail.
	OnExplicit Trigger = "explicit"
)

var triggers = []Trigger{OnTimeout, OnFailure, OnExplicit}

// Defaults of a retry policy.
const (
	defaultInitialDelay      = 5 * time.Second
	defaultBackoffMultiplier = 2.0
	defaultMaxDelay          = 5 * time.Minute
)

// RetryPolicy says how often and how far apart a job is called again after failures.
// Being rate limited is not a failure and costs no retry. Zero fields take their defaults.
// In JSON delays are whole seconds: initial_delay_secs and max_delay_secs.
type RetryPolicy struct {
	// MaxRetries bounds the calls after the first: 3 means 4 calls at most.
	MaxRetries int
	// InitialDelay is the time before the first retry, in whole seconds. Default 5 s.
	InitialDelay time.Duration
	// BackoffMultiplier multiplies the delay with each retry. Default 2.0.
	BackoffMultiplier float64
	// MaxDelay caps the delay, in whole seconds. Default 5 min, or InitialDelay if that is
	// longer.
	MaxDelay time.Duration
	// RetryOn names the failures that are retried. Nil means all of them.
	RetryOn []Trigger
}

// zeroDelay stands for an explicit zero in a JSON document, which is not valid: an absent
// field takes its default.
const zeroDelay = time.Nanosecond

var zeroMultiplier = math.Copysign(0, -1)

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.InitialDelay = cmp.Or(p.InitialDelay, defaultInitialDelay)
	if p.BackoffMultiplier == 0 && !math.Signbit(p.BackoffMultiplier) {
		p.BackoffMultiplier = defaultBackoffMultiplier
	}
	// The default must not be below an explicit InitialDelay.
	p.MaxDelay = cmp.Or(p.MaxDelay, max(defaultMaxDelay, p.InitialDelay))
	return p
}

// policyJSON is a RetryPolicy in JSON.
type policyJSON struct {
	MaxRetries        int       `json:"max_retries"`
	InitialDelaySecs  *int64    `json:"initial_delay_secs"`
	BackoffMultiplier *float64  `json:"backoff_multiplier"`
	MaxDelaySecs      *int64    `json:"max_delay_secs"`
	RetryOn           []Trigger `json:"retry_on"`
}

func (j policyJSON) policy() RetryPolicy {
	p := RetryPolicy{MaxRetries: j.MaxRetries, RetryOn: j.RetryOn}
	delay := func(secs *int64) time.Duration {
		if secs == nil {
			return 0
		}
		most := int64(math.MaxInt64 / time.Second)
		return cmp.Or(time.Duration(min(max(*secs, -most), most))*time.Second, zeroDelay)
	}
	p.InitialDelay, p.MaxDelay = delay(j.InitialDelaySecs), delay(j.MaxDelaySecs)
	if j.BackoffMultiplier != nil {
		if p.BackoffMultiplier = *j.BackoffMultiplier; p.BackoffMultiplier == 0 {
			p.BackoffMultiplier = zeroMultiplier
		}
	}
	return p.withDefaults()
}

// UnmarshalJSON fills absent fields with their defaults; an explicit zero is kept and
// refused by the validation.
func (p *RetryPolicy) UnmarshalJSON(b []byte) error {
	var v policyJSON
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	*p = v.policy()
	return nil
}

// MarshalJSON writes the triggers in force, also if RetryOn is nil.
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	initial, longest := seconds(p.InitialDelay), seconds(p.MaxDelay)
	j := policyJSON{p.MaxRetries, &initial, &p.BackoffMultiplier, &longest, p.RetryOn}
	if j.RetryOn == nil {
		j.RetryOn = triggers
	}
	return json.Marshal(j)
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// Retries reports whether a job that has made attempt retries is called again after a failure
// of kind t.
func (p *RetryPolicy) Retries(attempt int, t Trigger) bool {
	return p != nil && attempt < p.MaxRetries && (p.RetryOn == nil || slices.Contains(p.RetryOn, t))
}

// Delay is the time between a failure and the next call, for a job that has
// made attempt retries: initial × multiplier^attempt, ±10 % of jitter, then
// not above MaxDelay and not below one second.
func (p *RetryPolicy) Delay(attempt int) time.Duration {
	return p.DelayWith(attempt, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}

// DelayWith is Delay with a random number from 0 to 1: 0 gives the shortest delay, 0.5 the
// one without jitter, 1 the longest.
func (p *RetryPolicy) DelayWith(attempt int, random float64) time.Duration {
	policy := p.withDefaults()
	secs := policy.InitialDelay.Seconds() * math.Pow(policy.BackoffMultiplier, float64(attempt))
	secs *= 0.9 + 0.2*random
	secs = max(1, min(secs, policy.MaxDelay.Seconds(), store.Longest.Seconds()))
	return time.Duration(secs * float64(time.Second))
}

func (p *RetryPolicy) validate(l Limits, bad func(field, format string, args ...any)) {
	if p.MaxRetries < 1 || p.MaxRetries > l.RetryMaxRetries {
		bad("retry.max_retries", "must be from 1 to %d, is %d", l.RetryMaxRetries, p.MaxRetries)
	}
	whole := func(field string, d time.Duration) bool {
		if d >= time.Second && d%time.Second != 0 {
			bad(field, "must be whole seconds, is %s", d)
			return false
		}
		return true
	}
	if whole("retry.initial_delay_secs", p.InitialDelay) && p.InitialDelay < time.Second {
		bad("retry.initial_delay_secs", "must be at least 1, is %d", seconds(p.InitialDelay))
	}
	if !(p.BackoffMultiplier >= 1) || math.IsInf(p.BackoffMultiplier, 0) {
		bad("retry.backoff_multiplier", "must be at least 1.0, is %v", p.BackoffMultiplier+0)
	}
	if whole("retry.max_delay_secs", p.MaxDelay) && (p.MaxDelay < p.InitialDelay || p.MaxDelay > l.RetryMaxDelay) {
		bad("retry.max_delay_secs", "must be from initial_delay_secs (%d) to %d, is %d", seconds(p.InitialDelay), seconds(l.RetryMaxDelay), seconds(p.MaxDelay))
	}
	if p.RetryOn != nil && len(p.RetryOn) == 0 {
		bad("retry.retry_on", "must name at least one of timeout, failure, explicit; leave it out for all")
	}
	for _, t := range p.RetryOn {
		if !slices.Contains(triggers, t) {
			bad("retry.retry_on", "%q is none of timeout, failure, explicit", clip(string(t)))
		}
	}
}
