// Package doctor finds what does not agree in the records and indexes of jobs, and
// repairs it: jobs that nobody would ever run, entries without a job, counts that
// are wrong. Nothing of that happens by Tidegate's own scripts, which change a job
// and its indexes in one step; it happens when Redis loses its last writes, when
// asynq's tools or people change keys, and through bugs.
//
// A repair looks again in the same script that changes anything, so it is safe
// while workers run. All scripts and replies are bounded, whatever the number of
// jobs.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// Options say how to look. The zero value looks at everything and repairs it.
type Options struct {
	// Namespace whose queues are looked at. Default: store.DefaultNamespace.
	Namespace store.Namespace
	// DryRun changes nothing and reports the same.
	DryRun bool
	// By is who repairs, for the history of the jobs. Default: doctor.
	By string
	// Retention is how long a completed job is kept whose entry was lost. Default
	// 24 h.
	Retention time.Duration
	// Family, if set, is called for each job that has waited for its parents for
	// more than a minute, unless it is a dry run. It asks the parents again: the
	// process that enqueued the job may have died before they knew of it.
	Family func(ctx context.Context, queue, id string) error
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, store.DefaultNamespace)
	if o.By == "" {
		o.By = "doctor"
	}
	if o.Retention <= 0 {
		o.Retention = 24 * time.Hour
	}
	return o
}

// Run looks at all jobs of all queues once. The report tells what was found until
// an error stopped it.
func Run(ctx context.Context, rdb redis.UniversalClient, o Options) (*Report, error) {
	s := NewSweeper(rdb, o)
	r, _, err := s.portion(ctx, 0)
	return r, err
}

// Sweeper does what Run does in portions, for workers that do it on the side. It is
// for one goroutine at a time.
type Sweeper struct {
	rdb  redis.UniversalClient
	o    Options
	pass *pass // under way; nil between two
}

// NewSweeper returns a Sweeper at the beginning of its first round.
func NewSweeper(rdb redis.UniversalClient, o Options) *Sweeper {
	return &Sweeper{rdb: rdb, o: o.withDefaults()}
}

// Sweep does the next portion and tells what it found: it looks at all jobs in
// hand, and then goes on with the round through all other records where the last
// call stopped, for up to budget round trips (0: 1,000), each of which keeps Redis
// busy for about a millisecond. done is true if this ended a round. After an error
// the next call begins a new one.
func (s *Sweeper) Sweep(ctx context.Context, budget int) (report *Report, done bool, err error) {
	if budget <= 0 {
		budget = defaultBudget
	}
	return s.portion(ctx, budget)
}

// defaultBudget is enough for a round through 100,000 jobs, and keeps Redis busy for
// less than a second.
const defaultBudget = 1000

// portion does up to budget steps, 0 for all.
func (s *Sweeper) portion(ctx context.Context, budget int) (*Report, bool, error) {
	if s.pass == nil {
		s.pass = newPass(s.rdb, s.o)
	}
	p := s.pass
	p.found, p.masters = newFindings(s.o.DryRun), nil
	queues, err := p.o.Namespace.ListQueues(ctx, p.rdb)
	if err == nil {
		err = p.inHand(ctx, queues)
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
