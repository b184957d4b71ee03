package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Recover recovers a job of a dead worker, unless its lease was extended meanwhile. A shutdown does not
// wait for it: another check finds the job.
func (e *maintainer) Recover(queue string, job store.Lapsed) {
	ctx, cancel := context.WithTimeout(e.ctx, redisTimeout)
	defer cancel()
	a, err := e.applyUndecided(ctx, queue, job.ID, "", e.recoverOutcome())
	if err != nil {
		e.health.failed(err)
		return
	}
	if a.Kind == "" || e.o.Recovered == nil {
		return
	}
	msg, err := store.DecodeMessage([]byte(job.Message))
	if err != nil { // its next run fails it
		msg = &store.Message{Queue: queue, ID: job.ID}
	}
	e.o.Recovered(msg, a)
}

// recoverOutcome defers a job of a dead worker by a random time, so that a poison job does
// not crash the next worker together with the same other jobs.
func (e *core) recoverOutcome() store.Outcome {
	spread := time.Duration(rand.Int64N(int64(e.o.RecoverSpread) + 1)) //nolint:gosec // spreading needs no secrecy
	o := store.Outcome{Kind: store.KindRecover, At: time.Now().Add(spread), Reason: store.ReasonWorkerLost}
	if e.o.MaxCrashes > 0 {
		o.Limit = &e.o.MaxCrashes
	}
	return o
}

// Begin records that a crash suspect is about to run: if its worker dies from now on, the job may
// be the cause. Without the record a crash does not count.
func (e *core) Begin(d *Delivery) {
	if d.Fields.Crashes == 0 {
		return
	}
	ctx, cancel := e.bounded()
	defer cancel()
	if err := e.rdb.HDel(ctx, store.TaskKey(d.Queue, d.ID), store.FieldUnstarted).Err(); err != nil && e.ctx.Err() == nil {
		e.o.Logger.Warn("the start of a crash suspect was not recorded", "job", d.ID, "error", err)
	}
}

// Expect keeps the hash of the token that a call of a job is about to carry; see store.Expect.
func (e *core) Expect(d *Delivery, hash string, attempt int, t store.Terms) (bool, error) {
	ctx, cancel := e.bounded()
	defer cancel()
	return store.Expect(ctx, e.rdb, d.Queue, d.ID, d.run, hash, attempt, t) //nolint:wrapcheck // it names the operation
}

// suspectOutcome defers a crash suspect while another one is in flight: suspects run one at
// a time, so that a poison job does not raise the crash counts of the others.
func (e *core) suspectOutcome() *store.Outcome {
	const from, to = time.Second, 3 * time.Second
	pause := from + time.Duration(rand.Int64N(int64(to-from))) //nolint:gosec // spreading needs no secrecy
	return &store.Outcome{Kind: store.KindUnstarted, At: time.Now().Add(pause), Reason: store.ReasonSuspect}
}
