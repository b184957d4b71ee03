package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// hurried is how many jobs try to close a destination; more than an outage needs.
const hurried = 12

// wantUntouched fails the test if the breaker has counted anything.
func (b *fixture) wantUntouched() {
	b.t.Helper()
	if s := b.breaker(); s.State != breaker.Closed || s.Failures != 0 || s.Streak != 0 {
		b.t.Errorf("the breaker counted what says nothing of the API: %s, %d failures, streak %d", s.State, s.Failures, s.Streak)
	}
}

// wantProbe fails the test unless the last incident ended by a probe that was not the first call, and
// no probe before it failed.
func (b *fixture) wantProbe() {
	b.t.Helper()
	redistest.Eventually(b.t, "the breaker closes", func() bool { return b.breaker().State == breaker.Closed })
	history := b.breakerHistory()
	if last := history[len(history)-1]; last.Cause != breaker.CauseSuccess || last.Probes != 0 {
		b.t.Errorf("closed by %s after %d failed probes, want 0", last.Cause, last.Probes)
	}
}

// slowAPI answers only paths other than /slow.
func slowAPI(t *testing.T) *fakehttp.Recorder {
	t.Helper()
	return fakehttp.Record(t, func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/slow") {
			select {
			case <-r.Context().Done():
			case <-t.Context().Done():
			}
		}
	})
}

// A job's own timeout below the destination's says nothing of the API when it lapses: neither while the
// breaker is closed nor as the probe, neither after the call was sent nor before there is a connection.
func TestOwnTimeoutIsNoFailureOfTheAPI(t *testing.T) {
	t.Parallel()
	hurry := jobs.CallTimeout(time.Second)
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		for range hurried {
			b.enqueue(jobs.Path("/slow"), hurry)
		}
		b.run(b.options(), newHTTP(t, httpdest.Options{URL: slowAPI(t).URL}).Publish, publisher.Concurrency(hurried))
		for range hurried {
			if e := b.event(); e.Result != publisher.FailedFinal || e.Outcome != publisher.OutcomeTimeout {
				t.Errorf("%s (%s): %v", e.Result, e.Outcome, e.Err)
			}
		}
		b.wantUntouched()
	})
	t.Run("handler in Go", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		for range hurried {
			b.enqueue(hurry)
		}
		b.run(b.options(), func(ctx context.Context, _ *jobs.Job) error {
			<-ctx.Done()
			return ctx.Err()
		}, publisher.Concurrency(hurried))
		for range hurried {
			b.want(publisher.FailedFinal)
		}
		b.wantUntouched()
	})
	t.Run("probe", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest, breaker.TripOptions{For: 300 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		b.enqueue(jobs.Path("/slow"), hurry)
		b.enqueue()
		b.run(b.options(), newHTTP(t, httpdest.Options{URL: slowAPI(t).URL}).Publish, publisher.Concurrency(1), rules(time.Hour))
		b.want(publisher.FailedFinal)
		b.want(publisher.Completed)
		b.wantProbe()
	})
	t.Run("no connection", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t)
		var hang atomic.Bool
		hang.Store(true)
		h := newHTTP(t, httpdest.Options{URL: slowAPI(t).URL, Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hang.Load() {
					select { // the transport dials on after the request has given up
					case <-ctx.Done():
					case <-t.Context().Done():
					}
					return nil, context.Canceled
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			},
		}})
		b.enqueue(hurry)
		p, err := publisher.New(b.rdb, b.options())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Handle(b.dest, h, publisher.Concurrency(1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if e := b.event(); e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonUnreachable {
			t.Errorf("%s (%s), want it rescheduled as unreachable: %v", e.Result, e.Reason, e.Err)
		}
		hang.Store(false)
		if s := p.Status()[0]; s.State == publisher.StateUnreachable {
			t.Errorf("one job's own timeout made the destination unreachable: %s", s.Reason)
		}
	})
}

// Expressions that take too long fail their job before any call, and no breaker counts that.
func TestSlowExpressionsFailTheirJob(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := fakehttp.Record(t, nil)
	parent := b.enqueue()
	list, err := json.Marshal(make([]int, 10_000))
	if err != nil {
		t.Fatal(err)
	}
	stop := b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		j.Output = list
		return nil
	})
	b.want(publisher.Completed)
	stop()
	expensive := func(i int) *jobs.Job {
		text := strings.Repeat(`{{ count(parents["`+parent.ID+`"], # == 1`+strings.Repeat(` || # == 1`, 30)+`) }} `, 100)
		payload, err := json.Marshal(map[string]any{"text": text, "i": i})
		if err != nil {
			t.Fatal(err)
		}
		job, err := b.client.Enqueue(t.Context(), jobs.New(b.dest, json.RawMessage(payload), jobs.After(parent.ID), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})))
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	// Long enough to begin on a busy machine, and far too short for the expressions.
	const hurry = time.Second
	h := newHTTP(t, httpdest.Options{URL: a.URL})
	for i := range hurried {
		expensive(i)
	}
	stop = b.run(b.options(), h.Publish, publisher.Concurrency(hurried), publisher.Timeout(hurry))
	for range hurried {
		e := b.event()
		if e.Result != publisher.FailedFinal || e.Called || !strings.Contains(e.LastError, "the expressions in {{ }} were not evaluated within") {
			t.Errorf("%s, called %t: %q", e.Result, e.Called, e.LastError)
		}
	}
	b.wantUntouched()
	if n := len(a.Requests()); n > 0 {
		t.Errorf("%d calls, want none", n)
	}
	stop()

	// The probe: its permit is given back, and the next job proves what the API does.
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest, breaker.TripOptions{For: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	slow := expensive(hurried)
	b.run(b.options(), publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		if job.ID != slow.ID {
			return h.Publish(ctx, job)
		}
		ctx, cancel := context.WithTimeout(ctx, hurry/20) // alone on an idle core it is evaluated sooner
		defer cancel()
		return h.Publish(ctx, job)
	}), publisher.Concurrency(1), rules(time.Hour))
	if e := b.event(); e.Job.ID != slow.ID || e.Result != publisher.FailedFinal {
		t.Errorf("the slow job: %s, %v", e.Result, e.Err)
	}
	b.enqueue()
	b.want(publisher.Completed)
	b.wantProbe()
}

// A connection that a dependency of a handler in Go does not get is the handler's failure: no worker
// takes the destination for unreachable, and no breaker for down.
func TestDependencyOfAHandlerIsNotTheDestination(t *testing.T) {
	t.Parallel()
	refused := fakehttp.ClosedPort(t)
	call := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, refused, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for name, dependency := range map[string]func(ctx context.Context) error{
		"over HTTP": call,
		"a database": func(context.Context) error {
			return errors.Join(errors.New("save"), &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
		},
		"without an address": func(context.Context) error {
			return &url.Error{Op: "Get", Err: &net.DNSError{Err: "no such host", Name: "db"}}
		},
		"that is never reached": func(ctx context.Context) error { <-ctx.Done(); return &net.OpError{Op: "dial", Err: ctx.Err()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.enqueueMany(hurried)
			b.run(b.options(), func(ctx context.Context, _ *jobs.Job) error { return dependency(ctx) },
				publisher.Concurrency(hurried), publisher.Timeout(500*time.Millisecond))
			for range hurried {
				if e := b.event(); e.Result != publisher.FailedFinal {
					t.Errorf("%s (%s): %v", e.Result, e.Reason, e.Err)
				}
			}
			b.wantUntouched()
		})
	}
}

// The destination's own timeout still counts, also for a job with a longer one.
func TestTimeoutOfTheDestinationStillCounts(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for range 3 {
		b.enqueue(jobs.Path("/slow"), jobs.CallTimeout(time.Hour))
	}
	b.run(b.options(), newHTTP(t, httpdest.Options{URL: slowAPI(t).URL}).Publish, publisher.Concurrency(3),
		publisher.Timeout(200*time.Millisecond), publisher.Breaker(breaker.Options{OutageThreshold: 3, Cooldown: time.Hour}))
	redistest.Eventually(t, "the outage is noticed", func() bool {
		s := b.breaker()
		return s.State == breaker.Open && s.Cause == breaker.CauseOutage
	})
}
