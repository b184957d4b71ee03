package jobs

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Trigger is a kind of failure that a retry policy may answer.
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
	DefaultInitialDelaySecs  = 5
	DefaultBackoffMultiplier = 2.0
	DefaultMaxDelaySecs      = 300
)

// RetryPolicy says how often and how far apart a job is called again after
// failures. Being rate limited is no failure and costs no retry.
type RetryPolicy struct {
	// MaxRetries bounds the calls after the first: 3 means 4 calls at most.
	MaxRetries int `json:"max_retries"`
	// InitialDelaySecs is the time before the first retry, in seconds. Default 5.
	InitialDelaySecs int `json:"initial_delay_secs"`
	// BackoffMultiplier multiplies the delay with each retry. Default 2.0.
	BackoffMultiplier float64 `json:"backoff_multiplier"`
	// MaxDelaySecs caps the delay, in seconds. Default 300.
	MaxDelaySecs int `json:"max_delay_secs"`
	// RetryOn names the failures that are retried. Nil means all of them.
	RetryOn []Trigger `json:"retry_on"`
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.InitialDelaySecs == 0 {
		p.InitialDelaySecs = DefaultInitialDelaySecs
	}
	if p.BackoffMultiplier == 0 {
		p.BackoffMultiplier = DefaultBackoffMultiplier
	}
	if p.MaxDelaySecs == 0 {
		// A default must not contradict what was asked for.
		p.MaxDelaySecs = max(DefaultMaxDelaySecs, p.InitialDelaySecs)
	}
	return p
}

// UnmarshalJSON fills absent fields with their defaults; an explicit zero is
// kept and refused by the validation.
func (p *RetryPolicy) UnmarshalJSON(b []byte) error {
	const absent = math.MinInt
	type plain RetryPolicy
	v := plain{BackoffMultiplier: DefaultBackoffMultiplier, InitialDelaySecs: DefaultInitialDelaySecs, MaxDelaySecs: absent}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if v.MaxDelaySecs == absent {
		v.MaxDelaySecs = max(DefaultMaxDelaySecs, v.InitialDelaySecs)
	}
	*p = RetryPolicy(v)
	return nil
}

// MarshalJSON writes the triggers in force, also where all of them are meant.
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	type plain RetryPolicy
	if p.RetryOn == nil {
		p.RetryOn = triggers
	}
	return json.Marshal(plain(p))
}

// Retries reports whether a job that has made attempt retries is to be called
// again after a failure of kind t.
func (p *RetryPolicy) Retries(attempt int, t Trigger) bool {
	return p != nil && attempt < p.MaxRetries && (p.RetryOn == nil || slices.Contains(p.RetryOn, t))
}

// Delay is the time between a failure and the next call, for a job that has
// made attempt retries: initial × multiplier^attempt, ±10 % of jitter, then
// not above MaxDelaySecs and not below one second.
func (p *RetryPolicy) Delay(attempt int) time.Duration {
	return p.DelayWith(attempt, rand.Float64()) //nolint:gosec // jitter needs no secrecy
}

// DelayWith is Delay with a number from 0 to 1 in place of chance: 0 gives the
// shortest delay, 0.5 the one without jitter, 1 the longest.
func (p *RetryPolicy) DelayWith(attempt int, random float64) time.Duration {
	policy := p.withDefaults()
	secs := float64(policy.InitialDelaySecs) * math.Pow(policy.BackoffMultiplier, float64(attempt))
	secs *= 0.9 + 0.2*random
	secs = max(1, min(secs, float64(policy.MaxDelaySecs), store.Longest.Seconds()))
	return time.Duration(secs * float64(time.Second))
}

func (p *RetryPolicy) validate(l Limits, bad func(field, format string, args ...any)) {
	maxDelay := int(l.RetryMaxDelay / time.Second)
	if p.MaxRetries < 1 || p.MaxRetries > l.RetryMaxRetries {
		bad("retry.max_retries", "must be from 1 to %d, is %d", l.RetryMaxRetries, p.MaxRetries)
	}
	if p.InitialDelaySecs < 1 {
		bad("retry.initial_delay_secs", "must be at least 1, is %d", p.InitialDelaySecs)
	}
	if !(p.BackoffMultiplier >= 1) || math.IsInf(p.BackoffMultiplier, 0) {
		bad("retry.backoff_multiplier", "must be at least 1.0, is %v", p.BackoffMultiplier)
	}
	if p.MaxDelaySecs < p.InitialDelaySecs || p.MaxDelaySecs > maxDelay {
		bad("retry.max_delay_secs", "must be from initial_delay_secs (%d) to %d, is %d", p.InitialDelaySecs, maxDelay, p.MaxDelaySecs)
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
