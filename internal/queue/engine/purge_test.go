package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// ended puts a job among those that ended in a state of ours, age ago.
func (s *testQueue) ended(id, state string, age time.Duration, fields ...any) {
	s.t.Helper()
	s.hash(id, state, fields...)
	at := float64(s.now().Add(-age).UnixMilli())
	s.must(s.rdb.ZAdd(context.Background(), store.ParkedKey(s.queue, state), redis.Z{Score: at, Member: id}).Err())
}

// Purge deletes all finished jobs whose retention has ended.
func TestJanitorPurges(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	ctx := context.Background()
	w := &wire{UniversalClient: s.rdb}
	c := New(w, Options{Queues: []string{s.queue}, RetentionFailed: time.Hour})
	defer c.CloseGate(ctx)
	for i := range 250 {
		s.ended(fmt.Sprint("f", i), store.StateFailed, 2*time.Hour)
	}
	s.ended("x1", store.StateCancelled, 2*time.Hour)
	s.ended("x2", store.StateExpired, 2*time.Hour)
	s.ended("young", store.StateFailed, time.Minute)
	s.at(store.CompletedKey(s.queue), "c", store.StateCompleted, time.Unix(1, 0))
	c.Purge(ctx, s.queue)
	if diff := cmp.Diff(map[string]string{"failed": "young", "young": "failed"}, s.look()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if n := len(w.calls); n != 6 {
		t.Errorf("%d calls to purge 253 jobs in four sets, want 1 for each and 2 more for the failed", n)
	}
}

// Without a retention, what did not complete is kept for good.
func TestJanitorKeepsWithoutRetention(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}})
	defer c.CloseGate(context.Background())
	s.ended("f", store.StateFailed, 1000*time.Hour)
	c.Purge(context.Background(), s.queue)
	if diff := cmp.Diff(map[string]string{"failed": "f", "f": "failed"}, s.look()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// A Redis that does not answer is no reason for asynq to log; the next call tries
// again.
func TestJanitorDuringAnOutage(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	gone := true
	c := New(&wire{UniversalClient: s.rdb, answer: func(call) *redis.Cmd {
		if gone {
			return redis.NewCmdResult(nil, errGone)
		}
		return nil
	}}, Options{Queues: []string{s.queue}, RetentionFailed: time.Hour})
	defer c.CloseGate(context.Background())
	s.ended("f", store.StateFailed, 2*time.Hour)
	c.Purge(context.Background(), s.queue)
	if !c.health.down.Load() {
		t.Error("nobody was told of the outage")
	}
	gone = false
	c.Purge(context.Background(), s.queue)
	if diff := cmp.Diff(map[string]string{}, s.look()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
