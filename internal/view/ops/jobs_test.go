package ops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// However many keys' breakers hold the jobs of a page, few are read.
func TestAPageCostsFewReads(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	var page []*jobs.Job
	for i := range 1000 {
		key := fmt.Sprint("user-", i%500)
		page = append(page,
			&jobs.Job{Destination: "shop", Key: key, Status: jobs.Pending, ReasonCode: "held shop/" + key, AvailableAt: time.Now().Add(time.Hour), RescheduleCount: 1},
			&jobs.Job{Destination: store.CallbacksDestination, Status: jobs.Pending})
	}
	server.ResetStats(t)
	why, err := New(Options{Redis: rdb, Client: client}).explainAll(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * mostKeysExplained; i < 1000; i += 2 {
		if w := why[i]; w == nil || w.Reason != explain.Rescheduled && w.Reason != explain.NoWorker {
			t.Errorf("%d: %+v", i, w)
		}
	}
	stats := server.CommandStats(t)
	total := int64(0)
	for _, n := range stats {
		total += n
	}
	// What scripts do is counted, too.
	if asked := stats["eval"] + stats["evalsha"] + stats["exists"]; asked > mostKeysExplained+10 || total > 260 {
		t.Errorf("2000 jobs took %v", stats)
	}
}

// A batch is counted once for all callers, and again after ten times as long; a count goes on without its first
// caller. One that takes too long is not repeated at once, other errors are.
func TestABatchIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		took, kept time.Duration
		err        error
	}{
		{10 * time.Millisecond, time.Second, nil},
		{3 * time.Second, 30 * time.Second, nil},
		{30 * time.Second, 300 * time.Second, nil},
		{time.Hour, 10 * countTimeout, context.DeadlineExceeded},
		{time.Millisecond, 0, jobs.ErrNotFound},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, counts := NewCache(nil), 0
			count := func(ctx context.Context) error {
				k, err := c.read(ctx, "monday", countTerms, func(ctx context.Context) (any, error) {
					counts++
					select {
					case <-time.After(row.took):
						return 7, row.err
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				return errors.Join(err, k.err)
			}
			leaves, cancel := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			for range 20 {
				asking.Go(func() {
					if err := count(t.Context()); !errors.Is(err, row.err) {
						t.Errorf("%v, want %v", err, row.err)
					}
				})
			}
			asking.Go(func() { _ = count(leaves) })
			cancel()
			asking.Wait()
			if row.kept == 0 {
				_ = count(t.Context())
				if counts < 2 {
					t.Errorf("%v: not counted again", row.err)
				}
				return
			}
			<-time.After(row.kept - time.Millisecond)
			_ = count(t.Context())
			if counts != 1 {
				t.Errorf("%v: counted %d times, want once", row.took, counts)
			}
			<-time.After(time.Millisecond)
			_ = count(t.Context())
			if counts != 2 {
				t.Errorf("%v: counted %d times, want twice", row.took, counts)
			}
		})
	}
}
