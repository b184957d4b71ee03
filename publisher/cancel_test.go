package publisher_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// cutWithin is how soon the call of a running job that is cancelled must have ended.
const cutWithin = time.Second

// deaf is a Redis whose word on cancelled jobs never comes.
type deaf struct{ redis.UniversalClient }

func (d deaf) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	for i, c := range channels {
		if c == store.DefaultNamespace.ActionsChannel() {
			channels[i] = "nobody publishes here"
		}
	}
	return d.UniversalClient.Subscribe(ctx, channels...)
}

// runHTTP publishes to a fake API over HTTP.
func (b *fixture) runHTTP(o fakeapi.Options, opts ...publisher.HandleOption) *fakeapi.API {
	b.t.Helper()
	api := fakeapi.New(o)
	url, err := api.Start("")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = api.Close() })
	h, err := httpdest.New(httpdest.Options{URL: url})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = h.Close() })
	po := b.options()
	po.RetryLoopInterval = 0 // the default
	b.run(po, h.Publish, opts...)
	return api
}

// waitAPI waits for the API's counts.
func waitAPI(t *testing.T, api *fakeapi.API, cond func(fakeapi.Stats) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := api.Wait(ctx, cond); err != nil {
		t.Fatal(err)
	}
}

// The cancel of a running job ends its HTTP call within a second on a machine that is not busy,
// also where the word of it is lost and the next beat has to find it.
func TestCancelCutsARunningCall(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for _, tc := range []struct {
		name string
		lost bool
	}{{"told at once", false}, {"word lost", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			if tc.lost {
				b.rdb = deaf{b.rdb}
			}
			api := b.runHTTP(fakeapi.Options{Latency: time.Hour}, publisher.Concurrency(10), publisher.Timeout(time.Hour))
			fastest, slowest := time.Hour, time.Duration(0)
			for round := range 3 {
				job := b.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 3}))
				waitAPI(t, api, func(s fakeapi.Stats) bool { return s.InFlight == 1 })
				// At any instant between two beats.
				<-time.After(time.Duration(round) * 340 * time.Millisecond)
				started := time.Now()
				if err := b.client.Cancel(context.Background(), job.ID, jobs.By("ann"), jobs.Because("not wanted any more")); err != nil {
					t.Fatal(err)
				}
				waitAPI(t, api, func(s fakeapi.Stats) bool { return s.InFlight == 0 })
				fastest, slowest = min(fastest, time.Since(started)), max(slowest, time.Since(started))
				if e := b.want(publisher.Cancelled); !e.Called {
					t.Error("the event says that there was no call")
				}
				got := b.get(job.ID)
				if got.Status != jobs.Cancelled || got.LastError != "not wanted any more" || got.EndedAt == nil || got.Attempt != 0 {
					t.Errorf("%s, last error %q, ended %v, attempt %d", got.Status, got.LastError, got.EndedAt, got.Attempt)
				}
				entries, err := b.client.History(context.Background(), job.ID)
				if err != nil {
					t.Fatal(err)
				}
				last := entries[len(entries)-1]
				if last.Event != "cancelled" || last.By != "ann" || last.Detail != "not wanted any more" {
					t.Errorf("the history ends with %+v", last)
				}
			}
			for _, r := range api.Receipts() {
				if !r.Gone {
					t.Errorf("the call for %s was answered", r.Key)
				}
			}
			t.Logf("3 calls ended within %s to %s", fastest, slowest)
			if fastest >= cutWithin || slowest >= 20*cutWithin {
				t.Errorf("3 calls ended %s to %s after their cancel, want less than %s", fastest, slowest, cutWithin)
			}
			if s := b.breaker(); s.State != breaker.Closed || s.Failures != 0 {
				t.Errorf("cancelled calls changed the breaker: %s, %d failures", s.State, s.Failures)
			}
		})
	}
}

// What the API had accepted when the cancel came completes the job, and its
// children run.
func TestCancelAfterTheAnswer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	job := b.enqueue()
	child := b.enqueue(jobs.After(job.ID))
	inCall := make(chan struct{}, 1)
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		if j.ID == job.ID {
			inCall <- struct{}{}
			<-ctx.Done()
		}
		return nil // the answer had come at the same moment
	})
	signal(t, "the call", inCall)
	if err := b.client.Cancel(context.Background(), job.ID); err != nil {
		t.Fatal(err)
	}
	b.waitStatus(job.ID, jobs.Completed)
	b.waitStatus(child.ID, jobs.Completed)
	b.mustBeEmpty()
}

// A probe that is cancelled gives its permit back: another job probes at once,
// not when the lease of the first one ends.
func TestCancelledProbeGivesItsPermitBack(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	if _, err := breaker.DefaultNamespace.Trip(context.Background(), b.rdb, b.dest, breaker.TripOptions{For: 50 * time.Millisecond, By: "test"}); err != nil {
		t.Fatal(err)
	}
	probe, next := b.enqueue(), b.enqueue()
	inCall := make(chan string, 10)
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		inCall <- j.ID
		if j.ID == probe.ID {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}, publisher.Breaker(breaker.Options{Cooldown: time.Hour, ProbeTimeout: time.Hour}), publisher.Timeout(time.Hour))
	if id := signal(t, "a probe", inCall); id != probe.ID {
		t.Fatalf("%s probes, want %s", id, probe.ID)
	}
	if s := b.breaker(); s.State != breaker.HalfOpen || s.ProbeBy == "" {
		t.Fatalf("%s, probe by %q", s.State, s.ProbeBy)
	}
	started := time.Now()
	if err := b.client.Cancel(context.Background(), probe.ID); err != nil {
		t.Fatal(err)
	}
	results := map[string]string{} // in any order: each in its slot
	for range 2 {
		e := b.event()
		results[e.Job.ID] = e.Result
	}
	if results[probe.ID] != publisher.Cancelled || results[next.ID] != publisher.Completed {
		t.Fatalf("results %v", results)
	}
	if took := time.Since(started); took > time.Minute {
		t.Errorf("the next probe ended %s after the cancel", took)
	}
	if got := b.record(next.ID); got.RescheduleCount != 0 {
		t.Errorf("the next job was put off %d times", got.RescheduleCount)
	}
	redistest.Eventually(t, "closed", func() bool { return b.breaker().State == breaker.Closed })
}
