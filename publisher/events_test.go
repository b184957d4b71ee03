package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
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
	h, err := httpdest.New(httpdest.Options{URL: api.URL, AuthToken: token})
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
	if got := signal(t, "the outage's answer is told", answers); got.Status != 500 || got.Outcome != publisher.OutcomeFailure {
		t.Errorf("told %+v", got)
	}
	before := time.Now()
	limited := b.enqueue(jobs.Path("/limited"), jobs.Key("alice"))
	e := b.want(publisher.Rescheduled)
	got := signal(t, "the answer is told", answers)
	if got.At.Before(before) || got.At.After(time.Now()) {
		t.Errorf("it came at %s", got.At)
	}
	want := publisher.Answer{
		Destination: b.dest, Key: "alice", Job: limited.ID, Outcome: publisher.OutcomeRateLimited, Status: 429, RetryAfter: 7 * time.Second, Err: e.Err,
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
		want   *publisher.Answer // its Status, Body, Outcome and RetryAfter are compared; nil: observers get none
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
		{"an outage", func(j *jobs.Job) error {
			j.Response = &jobs.Response{Status: 503, Body: "up\x00stream"}
			return errors.New("answered 503")
		}, &publisher.Answer{Status: 503, Body: "upstream", Outcome: publisher.OutcomeFailure}},
		{"no answer", func(*jobs.Job) error {
			return &net.OpError{Op: "read", Err: errors.New("connection \x00reset")}
		}, &publisher.Answer{Body: "read: connection reset", Outcome: publisher.OutcomeFailure}},
		{"no part of an outage", func(j *jobs.Job) error {
			j.Response = &jobs.Response{Status: 422}
			return errors.New("answered 422")
		}, nil},
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
			got, outcome := signal(t, "the answer is told", answers), tc.want.Outcome
			if outcome == "" {
				outcome = publisher.OutcomeRateLimited
			}
			if got.Destination != b.dest || got.Job != job.ID || got.Err == nil || got.Status != tc.want.Status || got.Body != tc.want.Body || got.Outcome != outcome || got.RetryAfter != tc.want.RetryAfter {
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

// The event of a failed job tells whether the later jobs of its key wait for it, as the job's record does.
func TestFailureTellsWhetherItBlocks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		order  jobs.Ordering
		onFail publisher.OnFail
		opts   []jobs.Option
		want   bool
	}{
		"block":                 {jobs.OrderKey, publisher.OnFailBlock, []jobs.Option{jobs.Key("alice")}, true},
		"block, the job's":      {jobs.OrderNone, publisher.OnFailBlock, []jobs.Option{jobs.Key("alice"), jobs.Order(jobs.OrderKey)}, true},
		"block, not the job's":  {jobs.OrderKey, publisher.OnFailBlock, []jobs.Option{jobs.Key("alice"), jobs.Order(jobs.OrderNone)}, false},
		"block, without a key":  {jobs.OrderKey, publisher.OnFailBlock, nil, false},
		"block, without orders": {jobs.OrderNone, publisher.OnFailBlock, []jobs.Option{jobs.Key("alice")}, false},
		"skip":                  {jobs.OrderKey, publisher.OnFailSkip, []jobs.Option{jobs.Key("alice")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.run(b.options(), func(context.Context, *jobs.Job) error { return jobs.Discard(errors.New("no such post")) },
				publisher.Order(tc.order, tc.onFail))
			job := b.enqueue(tc.opts...)
			if e := b.want(publisher.FailedFinal); e.Blocks != tc.want {
				t.Errorf("the event says %v", e.Blocks)
			}
			if j := b.record(job.ID); j.Blocks != tc.want {
				t.Errorf("the record says %v", j.Blocks)
			}
		})
	}
}
