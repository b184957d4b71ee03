package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// play has one client do this and that until ctx ends.
func (r *race) play(over context.Context, rng *rand.Rand) {
	for n := 0; over.Err() == nil; n++ {
		var err error
		switch i := rng.IntN(20); {
		case r.keyed && rng.IntN(6) == 0:
			err = r.tripOne(rng)
		case i < 6:
			err = r.enqueueSome(rng)
		case i < 16:
			err = r.actOnOne(rng)
		case i < 18:
			err = r.actOnMany(rng)
		case i < 19:
			err = r.readSome(rng)
		default:
			err = r.pauseOne(rng)
		}
		if err != nil {
			r.t.Error(err)
		}
		select { // not all clients always at it: workers are to have their turn too
		case <-over.Done():
		case <-time.After(time.Duration(rng.IntN(3)) * time.Millisecond):
		}
	}
}

func (r *race) some(rng *rand.Rand) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[rng.IntN(len(r.ids))]
}

// enqueueSome enqueues up to five jobs. They are known before: a worker may be
// quicker than the answer.
func (r *race) enqueueSome(rng *rand.Rand) error {
	var specs []*jobs.Spec
	r.mu.Lock()
	r.book.mu.Lock()
	for range 1 + rng.IntN(5) {
		if float64(len(r.ids)) > jobsPerSecond*time.Since(r.start).Seconds() {
			break
		}
		s := r.spec(rng)
		specs = append(specs, s)
		if j := r.book.meant(s); r.keyed {
			j.reschedules.most = math.MaxInt32 // those of jobs in hand when a breaker opens are no calls
		}
		r.ids = append(r.ids, s.ID)
	}
	r.book.mu.Unlock()
	r.mu.Unlock()
	if len(specs) == 0 {
		return nil
	}
	results, err := r.client.EnqueueMany(ctx, specs)
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	for i, result := range results {
		if err == nil && (result.Err != nil || result.Job.Duplicate) {
			err = fmt.Errorf("enqueue %s: %+v", specs[i].ID, result)
		}
		if err == nil {
			r.book.accepted(r.book.jobs[specs[i].ID], result.Job)
		}
	}
	return err
}

// delayed holds a job for d, or until an instant where its TTL, given before, is shorter:
// such a delay would be refused.
func delayed(d time.Duration) jobs.Option {
	return jobs.Option(func(s *jobs.Spec) {
		if s.TTL != nil && d >= *s.TTL {
			jobs.At(time.Now().Add(d)).Apply(s)
			return
		}
		jobs.Delay(d).Apply(s)
	})
}

// spec describes a job. The ids of the ones that exist are known to it.
func (r *race) spec(rng *rand.Rand) *jobs.Spec {
	options := []jobs.Option{jobs.ID(fmt.Sprintf("r%03d", len(r.ids)))}
	add := func(o jobs.Option) { options = append(options, o) }
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	if chance(5) {
		add(jobs.TTL(time.Duration(rng.IntN(300)) * time.Millisecond))
	}
	if chance(4) {
		add(delayed(time.Duration(rng.IntN(200)) * time.Millisecond))
	}
	if chance(2) {
		add(jobs.Batch(batches[rng.IntN(2)]))
	}
	if chance(3) {
		add(jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, InitialDelay: time.Second, MaxDelay: time.Second}))
	}
	if chance(3) {
		add(jobs.MaxReschedules(rng.IntN(5)))
	}
	if chance(4) {
		add(jobs.Prioritize([]jobs.Priority{jobs.PriorityHigh, jobs.PriorityLow}[rng.IntN(2)]))
	}
	if r.keyed && !chance(3) {
		add(jobs.Key(keys[rng.IntN(len(keys))]))
	}
	for range rng.IntN(3) {
		// An earlier one, that may be about to be enqueued only.
		if n := len(r.ids); n > 50 {
			add(jobs.After(r.ids[rng.IntN(n-50)]))
		}
	}
	return jobs.New(destinations[rng.IntN(2)], nil, options...)
}

// actOnOne does something to a job.
func (r *race) actOnOne(rng *rand.Rand) error {
	id := r.some(rng)
	if id == "" {
		return nil
	}
	a := actions[rng.IntN(len(actions))]
	undone := r.book.acting(a, id)
	results, err := r.client.Act(ctx, a, []string{id}, jobs.By("racer"))
	if err != nil {
		results = []jobs.ActResult{{}}
	}
	r.book.acted(a, id, undone, results[0])
	if e := results[0].Err; e != nil && !errors.Is(e, jobs.ErrStatus) && !errors.Is(e, jobs.ErrNotFound) {
		return e
	}
	return err
}

// actOnMany does something to all jobs of a filter.
func (r *race) actOnMany(rng *rand.Rand) error {
	a := actions[rng.IntN(len(actions))]
	f := jobs.Filter{Batch: batches[rng.IntN(2)]}
	if rng.IntN(2) == 0 {
		f = jobs.Filter{Destination: destinations[rng.IntN(2)], Statuses: []jobs.Status{jobs.Statuses[rng.IntN(len(jobs.Statuses))]}}
	}
	if !undoes[a] && rng.IntN(3) > 0 {
		return nil // else hardly a job is left to the workers
	}
	undone := r.book.acting(a, "")
	_, err := r.client.ActWhere(ctx, a, f, jobs.By("racer"))
	r.book.acted(a, "", undone, jobs.ActResult{})
	return err
}

// readSome looks at jobs, which ends those whose time is over.
func (r *race) readSome(rng *rand.Rand) error {
	id := r.some(rng)
	if id == "" {
		return nil
	}
	_, getErr := r.client.Get(ctx, id)
	_, historyErr := r.client.History(ctx, id)
	_, batchErr := r.client.Batch(ctx, batches[rng.IntN(2)])
	for _, err := range []error{getErr, historyErr, batchErr} {
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
	}
	_, listErr := r.client.List(ctx, jobs.ListOptions{Filter: jobs.Filter{Destination: destinations[rng.IntN(2)]}})
	_, statsErr := r.client.Stats(ctx, "")
	return errors.Join(listErr, statsErr)
}

// pauseOne pauses a destination for a moment.
func (r *race) pauseOne(rng *rand.Rand) error {
	d := destinations[rng.IntN(2)]
	_, pauseErr := r.client.PauseDestination(ctx, d)
	_, resumeErr := r.client.ResumeDestination(ctx, d)
	return errors.Join(pauseErr, resumeErr)
}

// tripOne opens the breaker of a key for a moment, or until somebody resets it, or
// closes it.
func (r *race) tripOne(rng *rand.Rand) error {
	name := destinations[rng.IntN(2)] + "/" + keys[rng.IntN(len(keys))]
	var err error
	switch rng.IntN(4) {
	case 0:
		_, err = breaker.DefaultNamespace.Trip(ctx, r.rdb, name, breaker.TripOptions{By: "racer"})
	case 1:
		_, err = breaker.DefaultNamespace.Reset(ctx, r.rdb, name, "racer")
	default:
		_, err = breaker.DefaultNamespace.Trip(ctx, r.rdb, name, breaker.TripOptions{For: time.Duration(1+rng.IntN(200)) * time.Millisecond, By: "racer"})
	}
	held := int64(0)
	for _, d := range destinations {
		held += r.rdb.ZCard(ctx, store.HeldKey(store.DefaultNamespace.Queue(d, store.Default))).Val()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips++
	r.held = max(r.held, held)
	return err
}

// resetAll closes the breakers of all keys.
func (r *race) resetAll(destination string) {
	for _, key := range keys {
		if _, err := breaker.DefaultNamespace.Reset(ctx, r.rdb, destination+"/"+key, "racer"); err != nil {
			r.t.Error(err)
		}
	}
}
