package jobs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/jobs"
)

// Nothing that stays pending is missed while workers take, finish, put off,
// retry and forward jobs between the pages, and others enqueue.
func TestNothingThatStaysIsMissed(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{7, 300} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			t.Parallel()
			m := newMover(newBench(t))
			stayed := m.pendingNow()
			m.moved = func(id string) { delete(stayed, id) }
			moves := 0
			o := filter(m.dest, jobs.Pending)
			o.Limit = limit
			pages := m.listAll(o, func(int) {
				if moves++; moves > 400 {
					return // let the list come to its end
				}
				for range 1 + rand.IntN(3) {
					m.move()
				}
			})
			listed := map[string]bool{}
			for _, id := range slices.Concat(pages...) {
				listed[id] = true
			}
			if len(stayed) < 300 {
				t.Fatalf("only %d jobs stayed pending", len(stayed))
			}
			for id := range stayed {
				if !listed[id] {
					t.Errorf("%s was pending all the time and is in none of %d pages", id, len(pages))
				}
			}
		})
	}
}

// mover does to the jobs of a destination what workers and producers do.
type mover struct {
	*bench
	soon  []string        // scheduled, due next first
	moved func(id string) // is told of each job that a worker takes
}

// newMover has 1000 jobs: 500 in the queue, 200 for later that will be forwarded
// bit by bit, 300 for much later.
func newMover(b *bench) *mover {
	b.t.Helper()
	m := &mover{bench: b, moved: func(string) {}}
	specs := make([]*jobs.Spec, 1000)
	for i := range specs {
		switch {
		case i%2 == 0:
			specs[i] = jobs.New(m.dest, i)
		case i%5 < 2:
			specs[i] = jobs.New(m.dest, i, jobs.At(time.UnixMilli(4102444800000+int64(i))))
		default:
			specs[i] = jobs.New(m.dest, i, jobs.At(time.UnixMilli(4202444800000+int64(i))))
		}
	}
	results, err := m.EnqueueMany(context.Background(), specs)
	m.must(err)
	for i, r := range results {
		if i%2 == 1 && i%5 < 2 {
			m.soon = append(m.soon, r.Job.ID)
		}
	}
	return m
}

// move does one thing, chosen by chance.
func (m *mover) move() {
	ctx := context.Background()
	switch rand.IntN(6) {
	case 0: // a new job
		m.enqueue()
	case 1, 2: // what is due is forwarded to the queue; it stays pending
		if len(m.soon) > 0 {
			id := m.soon[0]
			m.soon = m.soon[1:]
			_, err := m.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.ZRem(ctx, store.ScheduledKey(m.queue()), id)
				p.LPush(ctx, store.PendingKey(m.queue()), id)
				p.HSet(ctx, store.TaskKey(m.queue(), id), store.FieldState, store.StatePending)
				return nil
			})
			m.must(err)
		}
	default: // a worker takes a job and does something with it
		if m.rdb.LLen(ctx, store.PendingKey(m.queue())).Val() < 300 {
			return
		}
		m.moved(m.rdb.LIndex(ctx, store.PendingKey(m.queue()), -1).Val())
		id := m.take()
		switch rand.IntN(4) {
		case 0:
			m.end(id, store.CompletedKey(m.queue()), store.StateCompleted, 5e9)
		case 1:
			m.end(id, store.RetryKey(m.queue()), store.StateRetry, 5e9)
		case 2: // put off
			m.end(id, store.ScheduledKey(m.queue()), store.StateScheduled, 4102444800+float64(rand.IntN(2e8)))
		case 3: // put back to the head
			m.must(m.rdb.LRem(ctx, store.ActiveKey(m.queue()), 1, id).Err())
			m.must(m.rdb.RPush(ctx, store.PendingKey(m.queue()), id).Err())
			m.set(id, store.FieldState, store.StatePending)
		}
	}
}

// pendingNow is what has the status pending.
func (m *mover) pendingNow() map[string]bool {
	m.t.Helper()
	out := map[string]bool{}
	ids := append(m.waiting(m.queue()), m.rdb.ZRange(context.Background(), store.ScheduledKey(m.queue()), 0, -1).Val()...)
	for _, id := range ids {
		out[id] = true
	}
	return out
}
