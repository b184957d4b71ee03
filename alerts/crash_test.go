package alerts

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// mortal is a worker's connection to Redis that ends with the worker: at its n-th
// command, before or after that has taken effect.
type mortal struct {
	left  atomic.Int64
	after bool
}

var errDead = errors.New("killed")

func (m *mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		left := m.left.Add(-1)
		if left > 0 {
			return next(ctx, cmd)
		}
		if left == 0 && m.after {
			_ = next(ctx, cmd) // done, but it dies before the reply
		}
		cmd.SetErr(errDead)
		return errDead
	}
}

func (m *mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		left := m.left.Add(-1)
		if left > 0 {
			return next(ctx, cmds)
		}
		if left == 0 && m.after {
			_ = next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errDead)
		}
		return errDead
	}
}

// dieAt has the next due job for to run in a worker that is killed at its n-th command.
// A minute later the job is taken back. It says whether the worker got that far.
func (b *harness) dieAt(n int, after bool, to string) bool {
	b.t.Helper()
	b.fetch()
	for _, t := range b.tasks {
		if t.done || t.due.After(b.now()) || t.job.Key != to {
			continue
		}
		m := &mortal{after: after}
		m.left.Store(int64(n))
		a, err := New(connect(b.t, b.addr, b.db, b.clock, m), configured(b).options(b.t))
		if err != nil {
			b.t.Fatal(err)
		}
		job := *t.job
		_ = a.Publish(b.t.Context(), &job) // the worker is dead
		t.due = b.now().Add(time.Minute)
		return m.left.Load() <= 0
	}
	b.t.Fatalf("no job for %s is due; waiting: %v", to, b.waiting())
	return false
}

// A worker is killed at each command that it sends to Redis, at the message, at the page
// and at the end. Another one does the rest, and nothing is lost.
func TestWorkerIsKilledAtEachCommand(t *testing.T) {
	t.Parallel()
	for to, commands := range map[string]int{"slack": 30, "pagerduty": 20} {
		for _, after := range []bool{false, true} {
			for n := 1; n <= commands; n++ {
				if after && n%2 == 1 {
					continue // mostly the same as before the next one
				}
				t.Run(fmt.Sprintf("%s, command %d, after it %v", to, n, after), func(t *testing.T) {
					t.Parallel()
					b := newHarness(t, 1)
					id := b.trip("shop")
					died := b.dieAt(n, after, to)
					b.play(15*time.Minute - time.Millisecond)
					b.moveTo(start.Add(15 * time.Minute))
					died = b.dieAt(n, after, to) || died
					b.play(20 * time.Minute)
					b.reset("shop")
					died = b.dieAt(n, after, to) || died
					b.play(time.Hour)
					b.toldInOrder(id, false)
					if n := len(b.sent()); n > 6 {
						t.Errorf("%v", b.sent()) // it dies once at each of the three
					}
					incidents := b.pager.Incidents()
					if len(incidents) != 1 || incidents[0].DedupKey != id || incidents[0].State != "resolved" {
						t.Errorf("PagerDuty: %v", b.paged())
					}
					if left := b.waiting(); len(left) > 0 {
						t.Errorf("jobs are left: %v", left)
					}
					if n < 12 && !died {
						t.Error("no worker was killed")
					}
				})
			}
		}
	}
}
