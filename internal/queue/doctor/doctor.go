// Package doctor finds and repairs disagreements between the records and the indexes of
// jobs: jobs that would never run, entries without a job, wrong counts. Tidegate's scripts
// change a job and its indexes in one step, so the causes are a Redis that loses its last
// writes, changes by asynq's tools or by hand, and bugs.
//
// A repair checks again in its script, so it is safe while workers run. All scripts and
// replies are bounded, whatever the number of jobs.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// Options configure a run. The zero value checks everything and repairs it.
type Options struct {
	// Namespace whose queues are looked at. Default: store.DefaultNamespace.
	Namespace store.Namespace
	// DryRun changes nothing and reports the same.
	DryRun bool
	// By is the actor in the history of repaired jobs. Default: doctor.
	By string
	// Retention of a completed job whose entry was lost. Default 24 h.
	Retention time.Duration
	// Family, if set, is called for each job that has waited for its parents for
	// more than a minute, unless it is a dry run. It registers the job with its parents
	// again: the process that enqueued it may have died before.
	Family func(ctx context.Context, queue, id string) error
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, store.DefaultNamespace)
	o.By = cmp.Or(o.By, "doctor")
	if o.Retention <= 0 {
		o.Retention = 24 * time.Hour
	}
	return o
}

// Run checks all jobs of all queues once. After an error the report has the findings until
// then.
func Run(ctx context.Context, rdb redis.UniversalClient, o Options) (*Report, error) {
	s := NewSweeper(rdb, o)
	r, _, err := s.portion(ctx, 0)
	if err != nil {
		return r, err
	}
	// Where INFO is forbidden, it is not known.
	if e, err := store.ReadEviction(ctx, rdb); err == nil && e.Problem() != "" {
		kind := KindEvicted
		switch {
		case e.Full:
			kind = KindFull
			r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Kind == KindNoWorker }) // heartbeats are refused
		case e.May():
			kind = KindEvicts
		}
		r.Findings = append([]Finding{{Kind: kind, Count: max(1, int(e.Evicted)), Detail: e.Problem()}}, r.Findings...)
	}
	return r, nil
}

// Sweeper is Run in portions, for workers. It is not safe for concurrent use.
type Sweeper struct {
	rdb  redis.UniversalClient
	o    Options
	pass *pass // nil between two
}

// NewSweeper returns a Sweeper at the beginning of its first round.
func NewSweeper(rdb redis.UniversalClient, o Options) *Sweeper {
	return &Sweeper{rdb: rdb, o: o.withDefaults()}
}

// Sweep does the next portion: it checks all jobs in flight, and continues the round through all other records for up
// to budget round trips (0: 1,000). A round trip takes Redis about a millisecond. done is true if this ended a round.
// After an error the next call begins a new one.
func (s *Sweeper) Sweep(ctx context.Context, budget int) (report *Report, done bool, err error) {
	if budget <= 0 {
		budget = defaultBudget
	}
	return s.portion(ctx, budget)
}

// defaultBudget is enough for 100,000 jobs, and takes Redis less than a second.
const defaultBudget = 1000

// portion does up to budget steps, 0 for all.
func (s *Sweeper) portion(ctx context.Context, budget int) (*Report, bool, error) {
	if err := store.CheckClient(s.rdb); err != nil {
		return &Report{}, false, fmt.Errorf("doctor: %w", err)
	}
	if s.pass == nil {
		s.pass = newPass(s.rdb, s.o)
	}
	p := s.pass
	p.found, p.masters = &findings{dry: s.o.DryRun, byKey: map[[3]string]*Finding{}}, nil
	queues, err := p.o.Namespace.ListQueues(ctx, p.rdb)
	if err == nil {
		err = p.inFlight(ctx, queues)
	}
	for n := 0; err == nil && len(p.todo) > 0 && (budget == 0 || n < budget); n++ {
		err = p.next(ctx)
	}
	done := err == nil && len(p.todo) == 0
	if err != nil || done {
		s.pass = nil
	}
	if err == nil && done {
		err = p.familyErr
	}
	if err != nil {
		err = fmt.Errorf("doctor: %w", err)
	}
	return p.found.report(), done, err
}
