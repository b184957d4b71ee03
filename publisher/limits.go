package publisher

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// NamedLimit is a limit that destinations share by its name, and how the jobs of one draw on it.
//
// If the limit's Unit is empty or calls, a job takes its cost. For another unit it takes Job.Costs of that unit, or
// else Estimate, or else 1. What a handler sets in Job.Costs corrects the charge after the call.
type NamedLimit struct {
	breaker.NamedLimit
	// Key returns the value under which a job draws: each value has its own budget. nil: one budget for all jobs.
	Key func(job *jobs.Job) (string, error)
	// Estimate is the charge of a job without Costs for the unit; nil: 1.
	Estimate func(job *jobs.Job) (float64, error)
}

// Limits sets the named limits that the destination draws on, up to 8. The settings of a limit should be the same on
// all workers. Key and Estimate must not change the job, and are called from several goroutines at once.
func Limits(limits ...NamedLimit) HandleOption {
	return func(s *settings) { s.limits = limits }
}

// describeLimits are the limits as text, for comparison with other workers.
func (s settings) describeLimits() string {
	var out []string
	for _, l := range s.limits {
		out = append(out, fmt.Sprint(l.Name, " ", l.Rate, " ", l.Concurrency, " ", l.Unit))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// vary reports whether jobs of the same cost may draw on the limits in different ways.
func (s settings) vary() bool {
	return slices.ContainsFunc(s.limits, func(l NamedLimit) bool { return l.Unit != "" || l.Key != nil })
}

// draws is what a job takes of named limits.
func (d *decider) draws(job *jobs.Job) []breaker.Draw {
	if !d.s.vary() {
		return nil
	}
	out := make([]breaker.Draw, len(d.s.limits))
	for i, l := range d.s.limits {
		var unestimated, unkeyed error
		out[i], unestimated, unkeyed = l.Draw(job)
		d.undrawn(job, l.Name, "estimate", unestimated)
		d.undrawn(job, l.Name, "key", unkeyed)
	}
	return out
}

// Draw returns what a job takes from the limit. If Estimate fails, the job takes 1; if Key fails, it draws on the
// budget without a key. unestimated and unkeyed are these errors.
func (l NamedLimit) Draw(job *jobs.Job) (draw breaker.Draw, unestimated, unkeyed error) {
	if job == nil {
		return breaker.Draw{Limit: l.Name, Cost: 1}, errors.New("publisher: draw: the job is nil"), nil
	}
	draw = breaker.Draw{Limit: l.Name, Cost: job.Cost}
	if l.Unit != "" {
		if draw.Cost = job.Costs[l.Unit]; draw.Cost == 0 && l.Estimate != nil {
			var n float64
			n, unestimated = guarded(l.Estimate, job)
			draw.Cost = whole(n)
		}
		draw.Cost = max(1, draw.Cost)
	}
	if l.Key != nil {
		var key string
		key, unkeyed = guarded(l.Key, job)
		draw.Key = toKey(key)
	}
	return draw, unestimated, unkeyed
}

// really is the real cost of a call on named limits, as the handler has set it in its copy of the job.
func (d *decider) really(own *jobs.Job) (out []breaker.Draw) {
	for _, l := range d.s.limits {
		n := own.Cost
		if l.Unit != "" {
			n = cmp.Or(own.Costs[":"+l.Name], own.Costs[l.Unit])
		}
		if n > 0 {
			out = append(out, breaker.Draw{Limit: l.Name, Cost: n})
		}
	}
	return out
}

// undrawn logs, once a minute, that a limit's expression gives nothing for a job.
func (d *decider) undrawn(job *jobs.Job, limit, what string, err error) {
	if err != nil && d.unkeyed.Allow(limit+what+err.Error()) {
		d.log.Warn("the "+what+" of a named limit gives nothing for a job, which takes 1 of its budget without a key", //nolint:sloglint // two texts
			"job", job.ID, "limit", limit, "error", clean(err.Error(), maxError))
	}
}

// whole rounds up what a call takes, within what a limit may have.
func whole(n float64) int {
	if n != n {
		return 1
	}
	return int(math.Ceil(min(max(n, 1), jobs.MaxCosts)))
}

// guarded calls a function of the options; a panic is an error.
func guarded[T any](f func(*jobs.Job) (T, error), job *jobs.Job) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panicked: %v", r)
		}
	}()
	return f(job)
}

// price is what a call takes from all limits.
type price struct {
	cost  int
	draws []breaker.Draw // as the limits of the destination are ordered; nil: their units are calls
}

func (p price) equal(other price) bool {
	return max(1, p.cost) == max(1, other.cost) && slices.Equal(p.draws, other.draws)
}

// unknown is the price of a job that is not known yet: the lowest that any job has.
func (s settings) unknown() price {
	p := price{cost: 1}
	for _, l := range s.limits {
		least := breaker.Draw{Limit: l.Name, Cost: 1}
		if l.Key != nil {
			least.Cost = -1 // of a budget that is not known
		}
		p.draws = append(p.draws, least)
	}
	if !s.vary() {
		p.draws = nil
	}
	return p
}

// priceOf returns the price of a job from its encoded message.
func (d *decider) priceOf(message string, cost int) price {
	p := price{cost: cost}
	if !d.s.vary() {
		return p
	}
	if job, err := decoded(message); err == nil { // otherwise process fails the job
		p.cost, p.draws = cmp.Or(job.Cost, 1), d.draws(job)
	}
	return p
}

// decoded is the job of an encoded message.
func decoded(message string) (*jobs.Job, error) {
	msg, err := store.DecodeMessage([]byte(message))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller passes over it
	}
	return store.JobOf[jobs.Job](msg, nil) //nolint:wrapcheck // likewise
}
