package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// fate is what is to become of a job.
type fate struct {
	calls  int
	status jobs.Status
}

// fates by the kind of a job, which is its payload.
var fates = map[string]fate{
	"complete":   {1, jobs.Completed},
	"reschedule": {2, jobs.Completed},
	"retry":      {2, jobs.Completed},
	"fail":       {1, jobs.Failed},
	"cancel":     {1, jobs.Cancelled},
	"pause":      {2, jobs.Completed},
	"child":      {1, jobs.Completed}, // of a job that completes
	"orphan":     {0, jobs.Cancelled}, // of one that fails
}

// slotRun is a busy queue whose slot moves.
type slotRun struct {
	t      *testing.T
	client *jobs.Client
	log    loggingtest.Buffer

	mu    sync.Mutex
	kinds map[string]string // by id
	calls map[string]int
	acts  sync.WaitGroup
}

// sure repeats what a moving slot refuses.
func (r *slotRun) sure(what string, f func() error) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := f()
		if err == nil || r.t.Context().Err() != nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Errorf("%s: %v", what, err)
			return
		}
	}
}

func (r *slotRun) handle(ctx context.Context, job *jobs.Job) error {
	r.mu.Lock()
	r.calls[job.ID]++
	first := r.calls[job.ID] == 1
	r.mu.Unlock()
	select {
	case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond): // the call
	case <-ctx.Done():
		return ctx.Err()
	}
	var kind string
	if err := json.Unmarshal(job.Payload, &kind); err != nil {
		return jobs.Discard(err)
	}
	switch {
	case kind == "fail":
		return jobs.Discard(errors.New("decided to fail"))
	case !first:
		return nil
	case kind == "reschedule":
		return jobs.Reschedule(0)
	case kind == "retry":
		return errors.New("try again")
	case kind == "cancel":
		r.acts.Go(func() {
			r.sure("cancel "+job.ID, func() error {
				results, err := r.client.Act(r.t.Context(), jobs.ActionCancel, []string{job.ID})
				if err == nil && results[0].Status != jobs.Cancelled && results[0].Status != jobs.Running {
					err = fmt.Errorf("it is %s", results[0].Status)
				}
				return err
			})
		})
		<-ctx.Done()
		return ctx.Err()
	case kind == "pause":
		r.sure("pause "+job.ID, func() error { return r.client.Pause(ctx, job.ID) })
		r.acts.Go(func() {
			r.sure("resume "+job.ID, func() error {
				now, err := r.client.Get(r.t.Context(), job.ID)
				if err != nil || now.Status == jobs.Completed {
					return err
				}
				if now.Status == jobs.Paused {
					_ = r.client.Resume(r.t.Context(), job.ID)
				}
				return errors.New("not yet completed")
			})
		})
		return jobs.Reschedule(0)
	}
	return nil
}

// enqueue enqueues jobs of all kinds, n times.
func (r *slotRun) enqueue(n int, busy, other string) {
	r.t.Helper()
	policy := jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second})
	add := func(destination, kind string, opts ...jobs.Option) string {
		job, err := r.client.Enqueue(r.t.Context(), jobs.New(destination, kind, opts...))
		if err != nil {
			r.t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kinds[job.ID] = kind
		return job.ID
	}
	for range n {
		for kind := range fates {
			switch kind {
			case "child", "orphan":
			case "complete":
				parent := add(busy, kind)
				for _, d := range []string{busy, other} {
					add(d, "child", jobs.After(parent))
				}
			case "fail":
				parent := add(busy, kind)
				for _, d := range []string{busy, other} {
					add(d, "orphan", jobs.After(parent))
				}
			default:
				add(busy, kind, policy)
			}
		}
	}
}

// The slot of a queue moves key by key, back and forth, while its jobs end in every way:
// each ends as was decided, after as many calls as were decided, and every index agrees.
func TestJobsEndAsDecidedWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	moves, perMove := 4, 3
	if long {
		moves, perMove = 40, 10
	}
	c := redistest.StartCluster(t)
	names := scattered(t, c, 2)
	busy, other := names[0], names[1]
	rdb := c.Client(t)
	r := &slotRun{t: t, kinds: map[string]string{}, calls: map[string]int{}}
	logger := slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	if r.client, err = jobs.NewClient(rdb, jobs.WithDestinations(names...), jobs.WithLogger(logger)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer func() { cancel(); work.Wait(); r.acts.Wait() }()
	for range 2 {
		p, err := publisher.New(c.Client(t), publisher.Options{
			Logger: logger, Worker: redistest.Name(t, "worker"), RetryLoopInterval: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := p.Handle(name, publisher.Func(r.handle), publisher.Concurrency(8), publisher.Breaker(breaker.Options{})); err != nil {
				t.Fatal(err)
			}
		}
		work.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		<-p.Started()
	}
	queue := store.PendingKey(store.DefaultNamespace.Queue(busy, store.Default))
	masters := c.Nodes()[:3]
	pace := time.NewTicker(3 * time.Millisecond)
	defer pace.Stop()
	began, keys := time.Now(), 0
	for range moves {
		r.enqueue(perMove, busy, other)
		to := masters[rand.IntN(len(masters))]
		for to == c.Owner(queue) {
			to = masters[rand.IntN(len(masters))]
		}
		keys += c.MoveSlot(t, queue, to, 1, func() { <-pace.C })
	}
	t.Logf("%d jobs, %d keys moved in %s", len(r.kinds), keys, time.Since(began).Round(time.Millisecond))
	r.awaitFates(60 * time.Second)
	r.acts.Wait()
	report, err := doctor.Run(ctx, rdb, doctor.Options{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		t.Errorf("the doctor finds %+v", f)
	}
	for line := range strings.Lines(r.log.String()) {
		// The sweep of each minute may meet the moving slot, and goes on in the next.
		if !strings.Contains(line, "failed") && !strings.Contains(line, "TRYAGAIN") {
			t.Errorf("logged: %s", line)
		}
	}
}

// awaitFates waits until all jobs have ended, and compares.
func (r *slotRun) awaitFates(within time.Duration) {
	r.t.Helper()
	deadline := time.Now().Add(within)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	wrong := 0
	for id, kind := range r.kinds {
		var job *jobs.Job
		for {
			var err error
			if job, err = r.client.Get(r.t.Context(), id); err == nil && job.Status.Final() || time.Now().After(deadline) {
				if err != nil {
					r.t.Errorf("%s %s: %v", kind, id, err)
				}
				break
			}
			<-poll.C
		}
		if kind == "pause" {
			history, err := r.client.History(r.t.Context(), id)
			if err != nil || !slices.ContainsFunc(history, func(e jobs.HistoryEntry) bool { return e.Event == "paused" }) {
				r.t.Errorf("%s was never paused: %v %v", id, history, err)
			}
		}
		r.mu.Lock()
		calls := r.calls[id]
		r.mu.Unlock()
		if want := fates[kind]; job != nil && (job.Status != want.status || calls != want.calls) {
			if wrong++; wrong <= 10 {
				r.t.Errorf("%s %s: %s after %d calls, crashes %d, last error %q; want %s after %d",
					kind, id, job.Status, calls, job.Crashes, job.LastError, want.status, want.calls)
			}
		}
	}
	if wrong > 0 {
		r.t.Errorf("%d of %d jobs did not end as decided", wrong, len(r.kinds))
	}
}
