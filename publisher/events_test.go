package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// What an API says when it will not take a call is told before the breaker opens of
// it, without the secrets that the API repeats.
func TestAnswersAreReportedFirst(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	const token = "the-token-of-this-test"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/limited":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintf(w, "slow\x1b[31m down, %s!", token+strings.Repeat("é", 400))
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(api.Close)
	h, err := publisher.NewHTTP(publisher.HTTPOptions{URL: api.URL, AuthToken: token})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan publisher.Answer, 10)
	o := b.options()
	o.Observe(publisher.Observer{OnAnswer: func(a publisher.Answer) {
		if s := b.breaker(); s.State != breaker.Closed {
			t.Errorf("the breaker is %s already", s.State)
		}
		answers <- a
	}})
	b.run(o, h.Publish, rules(time.Hour))
	b.enqueue(jobs.Path("/fine"))
	b.want(publisher.Completed)
	b.enqueue(jobs.Path("/broken"))
	b.want(publisher.FailedFinal)
	before := time.Now()
	limited := b.enqueue(jobs.Path("/limited"), jobs.Key("alice"))
	e := b.want(publisher.Rescheduled)
	got := signal(t, "the answer is told", answers)
	if got.At.Before(before) || got.At.After(time.Now()) {
		t.Errorf("it came at %s", got.At)
	}
	want := publisher.Answer{
		Destination: b.dest, Key: "alice", Job: limited.ID, Status: 429, RetryAfter: 7 * time.Second, Err: e.Err,
		Body: "slow[31m down, [redacted]" + strings.Repeat("é", 137), // 299 bytes: none is cut in two
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(publisher.Answer{}, "At"), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if got.Err == nil || strings.Contains(got.Err.Error(), token) {
		t.Errorf("error %v", got.Err)
	}
	if len(answers) != 0 {
		t.Errorf("%d more answers were told", len(answers))
	}
}

// A handler may say as little as that the call was rate limited.
func TestAnswersOfHandlers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		answer func(j *jobs.Job) error
		want   *publisher.Answer // of which only Status, Body and RetryAfter; nil: none is told
	}{
		{"no hint", func(*jobs.Job) error { return jobs.RateLimited(0) }, &publisher.Answer{}},
		{"a hint", func(*jobs.Job) error { return fmt.Errorf("call: %w", jobs.RateLimited(time.Minute)) }, &publisher.Answer{RetryAfter: time.Minute}},
		{
			"its answer in the job", func(j *jobs.Job) error {
				j.Response = &jobs.Response{Status: 403, Body: "no\x00w"}
				return &jobs.RateLimitedError{Response: &jobs.Response{Status: 1}}
			}, &publisher.Answer{Status: 403, Body: "now"},
		},
		{
			"its answer in the error", func(*jobs.Job) error {
				return &jobs.RateLimitedError{Response: &jobs.Response{Status: 420, Body: "calm"}}
			}, &publisher.Answer{Status: 420, Body: "calm"},
		},
		{"put off", func(*jobs.Job) error { return jobs.Reschedule(time.Hour) }, nil},
		{"failed", func(*jobs.Job) error { return errors.New("boom") }, nil},
		{"completed", func(*jobs.Job) error { return nil }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			answers := make(chan publisher.Answer, 10)
			o := b.options()
			o.Observe(publisher.Observer{OnAnswer: func(a publisher.Answer) { answers <- a }})
			b.run(o, func(_ context.Context, j *jobs.Job) error { return tc.answer(j) })
			job := b.enqueue()
			b.event()
			if tc.want == nil {
				if len(answers) != 0 {
					t.Errorf("told %+v", <-answers)
				}
				return
			}
			got := signal(t, "the answer is told", answers)
			if got.Destination != b.dest || got.Job != job.ID || got.Err == nil || got.Status != tc.want.Status || got.Body != tc.want.Body || got.RetryAfter != tc.want.RetryAfter {
				t.Errorf("told %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A job that its workers died with is told as poison, by one of all workers; if one
// of them lives after all and completes it, by that one.
func TestPoisonIsReported(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	job := b.enqueue(jobs.Key("alice"), jobs.Prioritize(jobs.PriorityDefault), jobs.MaxReschedules(7))
	inCall, goOn := make(chan struct{}, 1), make(chan struct{})
	slow := b.options()
	slow.MaxCrashes = 1
	b.runUnextended(slow, func(context.Context, *jobs.Job) error {
		inCall <- struct{}{}
		<-goOn
		return nil
	}, publisher.Concurrency(1))
	signal(t, "the call", inCall)
	b.ageLeases()
	var stops []func()
	for range 2 {
		o := b.options()
		o.MaxCrashes = 1
		stops = append(stops, b.run(o, func(context.Context, *jobs.Job) error {
			t.Error("the job was called a second time")
			return nil
		}))
	}
	e := b.want(publisher.FailedFinal)
	const problem = "poison: 1 worker died while running this job"
	if !e.Poison || e.Destination != b.dest || e.LastError != problem || e.Called || e.Err != nil {
		t.Errorf("told %+v", e)
	}
	if j := e.Job; j.ID != job.ID || j.Destination != b.dest || j.Key != "alice" || j.Status != jobs.Failed || j.Crashes != 1 ||
		j.LastError != problem || string(j.Payload) != `{"n":1}` || j.MaxReschedules == nil || *j.MaxReschedules != 7 {
		t.Errorf("of the job %+v", j)
	}
	b.waitStatus(job.ID, jobs.Failed)
	for _, stop := range stops {
		stop() // each has looked for lost jobs as it started
	}
	close(goOn)
	if e := b.want(publisher.Completed); e.Poison || e.LastError != "" || e.Destination != b.dest {
		t.Errorf("told %+v", e)
	}
	if len(b.events) != 0 {
		t.Errorf("told once more: %+v", <-b.events)
	}
}

// Jobs whose records cannot be read are told as failed, each once by one of two
// workers.
func TestUnreadableJobsAreReported(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	ctx := context.Background()
	const each = 20
	want := map[string]string{} // what is said of each
	for i, broken := range b.enqueueMany(2*each, jobs.Key("alice")) {
		// asynq cannot decode the first kind, and Tidegate the second.
		headers := map[string]string{"created": "1", "key": "alice", "path": "/caf\xe9"}
		want[broken] = "not valid UTF-8"
		if i >= each {
			headers = map[string]string{"created": "1", "key": "alice", "retry": "{"}
			want[broken] = "header retry"
		}
		m := store.Message{
			Type: store.TaskType, ID: broken, Queue: b.queue(), Payload: []byte(`{}`), Headers: headers,
			Retry: store.MaxRetry, Timeout: store.TaskTimeout,
		}
		if err := b.rdb.HSet(ctx, store.TaskKey(b.queue(), broken), store.FieldMsg, m.AppendTo(nil)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	o := b.options()
	o.Logger = slog.New(slog.DiscardHandler)
	for range 2 {
		b.run(o, func(_ context.Context, j *jobs.Job) error {
			if want[j.ID] != "" {
				t.Errorf("%s was called", j.ID)
			}
			return nil
		}, publisher.Concurrency(3))
	}
	told := map[string]int{}
	for range 2 * each {
		e := b.want(publisher.FailedFinal)
		told[e.Job.ID]++
		if !strings.Contains(e.LastError, want[e.Job.ID]) || e.Destination != b.dest || e.Called || e.Poison {
			t.Errorf("told %+v", e)
		}
		if j := e.Job; j.Destination != b.dest || j.Key != "alice" || j.Priority != jobs.PriorityDefault || j.Status != jobs.Failed || j.LastError != e.LastError {
			t.Errorf("of the job %+v", j)
		}
	}
	if len(told) != 2*each {
		t.Errorf("%d jobs were told of in %d events", len(told), 2*each)
	}
	after := b.enqueue()
	if e := b.want(publisher.Completed); e.Job.ID != after.ID {
		t.Errorf("told %+v", e)
	}
	b.mustBeEmpty()
}

// However many workers there are and whatever jobs wait for, the numbers that are
// told of expired jobs come to what has expired.
func TestExpiredJobsAreCounted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	until := jobs.TTL(2 * time.Hour)
	ids := slices.Concat(
		b.enqueueMany(150, until, jobs.Delay(time.Hour)), b.enqueueMany(150, until), b.enqueueMany(20, until, jobs.Prioritize(jobs.PriorityLow)),
	)
	for _, id := range ids[:10] {
		if err := b.client.Pause(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	b.makeOverdue(ids)
	var mu sync.Mutex
	total := 0
	o := b.options()
	o.Observe(publisher.Observer{OnExpired: func(destination string, n int) {
		if destination != b.dest || n <= 0 {
			t.Errorf("%d jobs of %q", n, destination)
		}
		mu.Lock()
		defer mu.Unlock()
		total += n
	}})
	var stops []func()
	for range 2 {
		stops = append(stops, b.run(o, func(_ context.Context, j *jobs.Job) error {
			t.Errorf("%s was called", j.ID)
			return nil
		}))
	}
	redistest.Eventually(t, "all have expired", func() bool {
		n := int64(0)
		for _, q := range store.DefaultNamespace.Queues(b.dest) {
			n += b.rdb.ZCard(context.Background(), store.ParkedKey(q, store.StateExpired)).Val()
		}
		return n == int64(len(ids))
	})
	for _, stop := range stops {
		stop()
	}
	mu.Lock()
	defer mu.Unlock()
	if total != len(ids) {
		t.Errorf("%d were told of, %d have expired", total, len(ids))
	}
	if len(b.events) != 0 {
		t.Errorf("one was told as run: %+v", <-b.events)
	}
}

// makeOverdue ends the time of jobs of any priority that have an expiry.
func (b *fixture) makeOverdue(ids []string) {
	b.t.Helper()
	ctx, ago := context.Background(), b.redisNow().Add(-time.Second).UnixMilli()
	n := 0
	for _, q := range store.DefaultNamespace.Queues(b.dest) {
		for _, id := range ids {
			if b.rdb.ZScore(ctx, store.ExpiryKey(q), id).Err() != nil {
				continue
			}
			n++
			if _, err := b.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.HSet(ctx, store.TaskKey(q, id), store.FieldExpiresAt, ago)
				pipe.ZAdd(ctx, store.ExpiryKey(q), redis.Z{Score: float64(ago), Member: id})
				return nil
			}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if n != len(ids) {
		b.t.Fatalf("%d of %d jobs wait for their expiry", n, len(ids))
	}
}
