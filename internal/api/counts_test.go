package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// slowCounts count batches of a size in a time each.
func slowCounts(size int, took time.Duration, err error) (c *batchCounts, made, atOnce *atomic.Int64) {
	var running atomic.Int64
	made, atOnce = &atomic.Int64{}, &atomic.Int64{}
	c = newBatchCounts(nil)
	c.size = func(_ context.Context, name string) (int, error) {
		if name == "small" {
			return 7, nil
		}
		return size, nil
	}
	c.count = func(ctx context.Context, name string) (*jobs.BatchStatus, error) {
		made.Add(1)
		if n := running.Add(1); n > atOnce.Load() {
			atOnce.Store(n)
		}
		defer running.Add(-1)
		select {
		case <-time.After(took):
			return &jobs.BatchStatus{Batch: name, Total: size}, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c, made, atOnce
}

// A batch is counted once for all who ask, and not again before ten times as long.
func TestABatchIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ took, good time.Duration }{{10 * time.Millisecond, time.Second}, {3 * time.Second, 30 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			c, made, _ := slowCounts(1_000_000, row.took, nil)
			var asking sync.WaitGroup
			for range 20 {
				asking.Go(func() {
					if k, err := c.of(t.Context(), "monday"); err != nil || k.status.Total != 1_000_000 {
						t.Errorf("%+v, %v", k, err)
					}
				})
			}
			asking.Wait()
			<-time.After(row.good - time.Millisecond) // of the bubble's clock
			if k, err := c.of(t.Context(), "monday"); err != nil || time.Since(k.at) != row.good-time.Millisecond || made.Load() != 1 {
				t.Errorf("%+v, %v: counted %d times, want once", k, err, made.Load())
			}
			<-time.After(time.Millisecond)
			if _, err := c.of(t.Context(), "monday"); err != nil || made.Load() != 2 {
				t.Errorf("%v: counted %d times, want twice", err, made.Load())
			}
		})
	}
}

// Who leaves takes nothing away from the others, nor from himself when he comes back.
func TestACountGoesOnWithoutWhoAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, made, _ := slowCounts(1_000_000, 30*time.Second, nil)
		ctx, cancel := context.WithTimeout(t.Context(), lookTimeout)
		defer cancel()
		if _, err := c.of(ctx, "monday"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first: %v, want that it takes too long", err)
		}
		if k, err := c.of(t.Context(), "monday"); err != nil || k.status.Total != 1_000_000 || made.Load() != 1 {
			t.Errorf("again: %+v, %v, counted %d times", k, err, made.Load())
		}
	})
}

// A batch that cannot be counted in time is not counted all the time.
func TestACountThatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, made, _ := slowCounts(1_000_000, time.Hour, nil)
		for range 5 {
			if _, err := c.of(t.Context(), "monday"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want that it takes too long", err)
			}
		}
		if made.Load() != 1 {
			t.Errorf("counted %d times, want once", made.Load())
		}
	})
}

// However many batches are asked for, few are counted at once; small ones do not wait
// for large ones, and not all are remembered.
func TestFewBatchesAreCountedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, made, atOnce := slowCounts(1_000_000, time.Second, nil)
		var asking sync.WaitGroup
		for i := range 20 {
			asking.Go(func() { _, _ = c.of(t.Context(), fmt.Sprint("batch-", i)) })
		}
		synctest.Wait()
		began := time.Now()
		if _, err := c.of(t.Context(), "small"); err != nil || time.Since(began) != time.Second {
			t.Errorf("a small one: %v after %v, want it counted at once", err, time.Since(began))
		}
		asking.Wait()
		if made.Load() != 21 || atOnce.Load() != countsAtOnce+1 {
			t.Errorf("%d counted, up to %d at once, want 21 and %d", made.Load(), atOnce.Load(), countsAtOnce+1)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := slowCounts(7, time.Millisecond, nil)
		for i := range 3 * mostCounts {
			if _, err := c.of(t.Context(), fmt.Sprint("batch-", i)); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.kept) > mostCounts {
			t.Errorf("%d counts are remembered, want at most %d", len(c.kept), mostCounts)
		}
	})
}

// What fails otherwise is tried again at once.
func TestACountThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, made, _ := slowCounts(7, time.Millisecond, jobs.ErrNotFound)
		for range 3 {
			if _, err := c.of(t.Context(), "monday"); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("%v", err)
			}
		}
		if made.Load() != 3 {
			t.Errorf("tried %d times, want 3", made.Load())
		}
	})
}
