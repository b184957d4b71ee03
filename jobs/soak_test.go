//go:build soak

package jobs_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// slowest is the longest that any command of ours may keep Redis from others, in time
// of a processor: on a machine that does other things too, time by the clock says
// little.
const slowest = 20 * time.Millisecond

// busyHook measures how much of a processor Redis needs for each round trip. It lets
// one through at a time.
type busyHook struct {
	mu    sync.Mutex
	stat  string
	trips int
	worst time.Duration // of a command, on average of its round trip
	what  string
}

// busy is the time of a processor that Redis's main thread has had so far.
func (h *busyHook) busy() (d time.Duration) {
	b, err := os.ReadFile(h.stat)
	if err == nil {
		_, err = fmt.Sscan(string(b), &d)
	}
	if err != nil {
		return 0
	}
	return d
}

func (h *busyHook) measure(cmds []redis.Cmder, do func() error) error {
	if greeting(cmds) {
		return do()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.busy()
	err := do()
	h.trips++
	if d := (h.busy() - before) / time.Duration(len(cmds)); d > h.worst {
		h.worst, h.what = d, cmds[0].Name()
		if h.what == "evalsha" {
			h.what = fmt.Sprintf("script %.8s", cmds[0].Args()[1])
		}
	}
	return err
}

func (h *busyHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *busyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.measure([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h *busyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.measure(cmds, func() error { return next(ctx, cmds) })
	}
}

// A million jobs, a batch of 100,000 among them, are enqueued, listed by page,
// counted, paused, cancelled, retried and expired, and Redis has time for others all
// the while.
func TestSoakMillionJobs(t *testing.T) {
	const n, batch = 1_000_000, 100_000
	server := redistest.Start(t, redistest.WithArgs("--slowlog-log-slower-than", "5000", "--slowlog-max-len", "1000"))
	rdb, admin := server.Client(t), server.Client(t)
	hook := &busyHook{stat: fmt.Sprintf("/proc/%d/task/%d/schedstat", server.PID(), server.PID())}
	rdb.AddHook(hook)
	b := benchOn(t, rdb)
	ctx := context.Background()
	step := func(what string, do func()) {
		t.Helper()
		hook.trips, hook.worst, hook.what = 0, 0, ""
		started, before := time.Now(), hook.busy()
		do()
		took, busy := time.Since(started), hook.busy()-before
		logs, err := admin.SlowLogGet(ctx, -1).Result()
		b.must(err)
		b.must(admin.Do(ctx, "SLOWLOG", "RESET").Err())
		longest := time.Duration(0)
		if len(logs) > 0 {
			longest = slices.MaxFunc(logs, func(a, b redis.SlowLog) int { return int(a.Duration - b.Duration) }).Duration
		}
		t.Logf("%-45s %8s, %6d round trips, Redis busy for %8s, at most %s for one command (%s); slow log: %d of 5 ms or more, the longest %s",
			what, took.Round(time.Millisecond), hook.trips, busy.Round(time.Millisecond), hook.worst.Round(10*time.Microsecond), hook.what, len(logs), longest)
		if hook.worst > slowest {
			t.Errorf("%s: %s kept Redis busy for %s, more than %s", what, hook.what, hook.worst, slowest)
		}
	}
	counts := func(want map[jobs.Status]int) {
		t.Helper()
		got := b.stats().Counts
		for s, n := range want {
			if got[s] != n {
				t.Errorf("%d jobs are %s, want %d", got[s], s, n)
			}
		}
	}
	inBatch := jobs.Filter{Batch: "large"}
	step("enqueue 450,000", func() { enqueueChunks(b, (n-batch)/2) })
	step("enqueue a batch of 100,000 with a TTL", func() { enqueueChunks(b, batch, jobs.Batch("large"), jobs.TTL(24*hour)) })
	step("enqueue 450,000", func() { enqueueChunks(b, (n-batch)/2) })
	step("count the batch", func() {
		if s := b.batch("large"); s.Total != batch || s.Counts[jobs.Pending] != batch {
			t.Errorf("batch %+v", s)
		}
	})
	step("list all by pages of 1000", func() {
		o := filter(b.dest)
		o.Limit = jobs.MaxPage
		listed := 0
		for {
			page := b.list(o)
			listed += len(page.Items)
			if o.Cursor = page.Next; o.Cursor == "" {
				break
			}
		}
		if listed != n {
			t.Errorf("%d jobs are listed", listed)
		}
	})
	do := func(a jobs.Action) {
		t.Helper()
		step(string(a)+" the batch", func() {
			sum, err := b.ActWhere(ctx, a, inBatch)
			b.must(err)
			if sum != (jobs.ActSummary{Done: batch}) {
				t.Errorf("%s: %+v", a, sum)
			}
		})
	}
	do(jobs.ActionPause)
	do(jobs.ActionResume)
	step("count what a cancel of the batch would do", func() {
		if got, err := b.CountWhere(ctx, jobs.ActionCancel, inBatch); err != nil || got != batch {
			t.Errorf("dry run %d, %v", got, err)
		}
	})
	do(jobs.ActionCancel)
	counts(map[jobs.Status]int{jobs.Pending: n - batch, jobs.Cancelled: batch})
	step("count the cancelled batch", func() {
		if s := b.batch("large"); s.Counts[jobs.Cancelled] != batch || !s.Done {
			t.Errorf("batch %+v", s)
		}
	})
	do(jobs.ActionRetry)
	do(jobs.ActionExpire)
	counts(map[jobs.Status]int{jobs.Pending: n - batch, jobs.Expired: batch})
	step("cancel the rest of the destination", func() {
		sum, err := b.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Destination: b.dest})
		b.must(err)
		if sum.Done != n-batch {
			t.Errorf("%+v", sum)
		}
	})
	counts(map[jobs.Status]int{jobs.Pending: 0, jobs.Cancelled: n - batch, jobs.Expired: batch})
	step("enqueue 100,000 that expire in milliseconds", func() { enqueueChunks(b, batch, jobs.Batch("short"), jobs.TTL(time.Millisecond)) })
	step("sweep them", func() {
		if s := b.batch("short"); s.Counts[jobs.Expired] != batch {
			t.Errorf("batch %+v", s)
		}
	})
}

// enqueueChunks does not keep all of them in memory here.
func enqueueChunks(b *bench, n int, opts ...jobs.Option) {
	b.t.Helper()
	for ; n > 0; n -= 10_000 {
		b.enqueueMany(min(n, 10_000), opts...)
	}
}
