package callbacks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// batch is how many events are read at once.
	batch = 100
	// shortPause is between two reads while jobs finish, longPause while none do.
	shortPause, longPause = 250 * time.Millisecond, time.Second
	// pokedPause is the least delay of a poke.
	pokedPause = 50 * time.Millisecond
	// defaultLease is the lease of a queue's relay, which it extends, or others try to acquire,
	// every third of it.
	defaultLease = 9 * time.Second
	// defaultWantEvery is how often a relay asks for the stream to be kept.
	defaultWantEvery = time.Minute
	// stepWithin bounds one batch.
	stepWithin = 5 * time.Second
	// longestRest is the longest pause while Redis fails.
	longestRest = 5 * time.Second
)

// relay makes callbacks of the completion events of one queue.
type relay struct {
	c           *Callbacks
	destination string
	priority    store.Priority
	queue       string
	wake        chan struct{}
	// defaultLease and defaultWantEvery, but for tests
	lease, wantEvery time.Duration

	lockAt  time.Time // when to acquire or extend the lease next
	wantAt  time.Time
	mine    bool
	relayed string // the last relayed entry, if mine
	failing bool
}

func newRelay(c *Callbacks, destination, queue string) *relay {
	_, priority, _ := store.ParseQueue(queue)
	return &relay{c: c, destination: destination, priority: priority, queue: queue, wake: make(chan struct{}, 1), lease: defaultLease, wantEvery: defaultWantEvery}
}

func (r *relay) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run relays until ctx ends.
func (r *relay) run(ctx context.Context) {
	defer r.giveUp(ctx)
	pause, rest := shortPause, shortPause
	for {
		n, err := r.step(ctx)
		if ctx.Err() != nil {
			return
		}
		r.note(ctx, err)
		var wake <-chan struct{}
		switch {
		case err != nil:
			pause = rest/2 + rand.N(rest) //nolint:gosec // it spreads calls
			rest = min(2*rest, longestRest)
		case !r.mine:
			pause, rest = time.Until(r.lockAt), shortPause
		case n >= batch:
			pause, rest = 0, shortPause
		case n > 0:
			pause, rest, wake = shortPause, shortPause, r.wake
		default:
			pause, rest, wake = min(max(2*pause, shortPause), longPause), shortPause, r.wake
		}
		if !wait(ctx, pause, wake) {
			return
		}
	}
}

// note logs when the first relay begins to fail, and when none does any more.
func (r *relay) note(ctx context.Context, err error) {
	switch failing := err != nil; {
	case failing == r.failing:
	case failing:
		r.failing = true
		if r.c.failing.Add(1) == 1 {
			r.c.log.WarnContext(ctx, "callbacks wait: events cannot be read or callbacks cannot be enqueued; it is tried again", "destination", r.destination, "error", err)
		}
	default:
		r.failing = false
		if r.c.failing.Add(-1) == 0 {
			r.c.log.InfoContext(ctx, "callbacks go on")
		}
	}
}

// wait waits for a time, or until it is woken. It returns false if ctx ends.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	case <-wake:
	}
	// Events of the same time are read together.
	select {
	case <-ctx.Done():
		return false
	case <-time.After(min(d, pokedPause)):
		return true
	}
}

// giveUp releases the queue to another relay at once.
func (r *relay) giveUp(ctx context.Context) {
	if !r.mine {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = lease.Release(ctx, r.c.rdb, store.EventsRelayKey(r.queue), r.c.o.Worker) // or it ends by itself
}

// step makes the callbacks of one batch, if this relay has the lease of the queue, and
// returns how many entries it has read.
func (r *relay) step(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	if err := r.hold(ctx); err != nil || !r.mine {
		return 0, err
	}
	messages, err := r.read(ctx)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	list := store.ParseEvents(r.queue, messages)
	specs, err := r.c.specs(ctx, r.destination, r.priority, list)
	if err != nil {
		return 0, err
	}
	if err := r.enqueue(ctx, specs); err != nil {
		return 0, err
	}
	last := messages[len(messages)-1].ID
	moved, err := store.SetRelayed(ctx, r.c.rdb, r.queue, r.c.o.Worker, r.relayed, last)
	if err != nil {
		r.mine, r.lockAt = false, time.Time{} // it may have been set
		return 0, err
	}
	if !moved {
		// Another relay has the lease now, and has enqueued the same callbacks.
		r.mine, r.lockAt = false, time.Now().Add(r.lease/3)
		return 0, nil
	}
	r.relayed = last
	return len(messages), nil
}

// hold acquires the lease of the queue, or extends it.
func (r *relay) hold(ctx context.Context) error {
	now := time.Now()
	if now.After(r.lockAt) {
		mine, err := lease.Acquire(ctx, r.c.rdb, store.EventsRelayKey(r.queue), r.c.o.Worker, r.lease)
		if err != nil {
			r.mine = false
			return err
		}
		if mine && !r.mine {
			r.wantAt, r.relayed = time.Time{}, ""
		}
		r.mine, r.lockAt = mine, now.Add(r.lease/3)
	}
	if !r.mine || now.Before(r.wantAt) {
		return nil
	}
	if err := store.WantRelay(ctx, r.c.rdb, r.queue); err != nil {
		return err
	}
	// Redis may have lost everything since the last time.
	relayed, err := store.Relayed(ctx, r.c.rdb, r.queue)
	if err != nil {
		return err
	}
	r.relayed, r.wantAt = relayed, now.Add(r.wantEvery)
	return nil
}

// read returns the next entries.
func (r *relay) read(ctx context.Context) ([]redis.XMessage, error) {
	var cmd *redis.XMessageSliceCmd
	if _, err := redispipe.Run(ctx, r.c.rdb, func(pipe redis.Pipeliner) error {
		cmd = store.QueueRead(ctx, pipe, r.queue, r.relayed, batch)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("callbacks: read the events of %s: %w", r.queue, err)
	}
	return cmd.Val(), nil
}

// enqueue enqueues callbacks. An existing one was enqueued before.
func (r *relay) enqueue(ctx context.Context, specs []*jobs.Spec) error {
	if len(specs) == 0 {
		return nil
	}
	results, err := r.c.client.EnqueueMany(store.AsSystem(ctx), specs)
	if err != nil {
		return err
	}
	var errs []error
	for i, result := range results {
		switch {
		case result.Err == nil:
		case errors.Is(result.Err, jobs.ErrInvalid):
			// It would fail again, and block the others.
			r.c.log.ErrorContext(ctx, "a callback cannot be enqueued; it is left out", "callback", specs[i].ID, "error", result.Err)
		default:
			errs = append(errs, result.Err)
		}
	}
	return errors.Join(errs...)
}
