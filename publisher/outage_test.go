package publisher_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// outageAPI answers with a status while it is down; of one path only, if that is not empty.
type outageAPI struct {
	*fakehttp.Recorder
	down    atomic.Bool
	status  int
	path    string
	refused atomic.Int32
}

func newOutageAPI(t *testing.T, status int, path string) *outageAPI {
	a := &outageAPI{status: status, path: path}
	a.down.Store(true)
	a.Recorder = fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		if a.down.Load() && strings.HasPrefix(r.URL.Path, a.path) {
			a.refused.Add(1)
			w.WriteHeader(a.status)
		}
	})
	return a
}

// serve starts two publishers that share a destination.
func (a *outageAPI) serve(b *fixture, concurrency int, o breaker.Options) {
	for range 2 {
		h := newHTTP(b.t, httpdest.Options{URL: a.URL})
		b.run(b.options(), h.Publish, publisher.Concurrency(concurrency), publisher.Breaker(o))
	}
}

// An API that is down, or bans the fleet, fails no job, and gets the calls that show it, those in
// flight meanwhile and one probe per cooldown.
func TestOutageFailsNoJob(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		status int
		opts   []jobs.Option
	}{
		"a limiter that answers 503":  {http.StatusServiceUnavailable, nil},
		"a ban with 403":              {http.StatusForbidden, nil},
		"401 without credentials":     {http.StatusUnauthorized, nil},
		"500 and a policy of 1 retry": {http.StatusInternalServerError, []jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 1})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			a := newOutageAPI(t, row.status, "")
			const n, threshold, concurrency = 60, 10, 3
			ids := b.enqueueMany(n, row.opts...)
			a.serve(b, concurrency, breaker.Options{Cooldown: 500 * time.Millisecond})
			redistest.Eventually(t, "three probes were refused", func() bool { return b.breaker().Probes >= 3 })
			if cause := b.breaker().IncidentCause; cause != breaker.CauseOutage {
				t.Errorf("the cause is %q", cause)
			}
			got := int(a.refused.Load())
			probes := b.breaker().Probes
			if got > threshold+2*concurrency+probes+2 {
				t.Errorf("%d calls into the outage, %d of them probes", got, probes)
			}
			a.down.Store(false)
			for _, id := range ids {
				if j := b.waitStatus(id, jobs.Completed); j.Attempt != 0 {
					t.Errorf("job %s: attempt %d", id, j.Attempt)
				}
			}
		})
	}
}

// Without an outage a job has the call that it has: it fails, and its history shows no more.
func TestOneFailureIsNoOutage(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := newOutageAPI(t, http.StatusInternalServerError, "")
	a.serve(b, 2, breaker.Options{Cooldown: time.Hour})
	id := b.enqueue().ID
	j := b.waitStatus(id, jobs.Failed)
	if j.LastError != "answered 500 Internal Server Error" || j.RescheduleCount != 0 || j.Attempt != 0 || a.refused.Load() != 1 {
		t.Errorf("%q, %d reschedules, attempt %d, %d calls", j.LastError, j.RescheduleCount, j.Attempt, a.refused.Load())
	}
	history, err := b.client.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, v := range history {
		events = append(events, v.Event)
	}
	if got := strings.Join(events, " "); got != "created started failed" {
		t.Errorf("history: %s", got)
	}
}

// A job that waits for the calls that follow is cancelled at once.
func TestCancelWhileUndecided(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	returned := make(chan struct{})
	id := b.enqueue().ID
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		defer close(returned)
		<-time.After(3 * time.Second) // so that it waits for 5 s
		j.Response = &jobs.Response{Status: http.StatusInternalServerError}
		return errors.New("answered 500")
	}, publisher.Breaker(breaker.Options{Cooldown: time.Hour}))
	signal(t, "the call", returned)
	redistest.Eventually(t, "the call counts", func() bool { return b.breaker().Streak == 1 })
	if err := b.client.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if j := b.waitStatus(id, jobs.Cancelled); j.Response == nil || j.Response.Status != http.StatusInternalServerError {
		t.Errorf("response %+v", j.Response)
	}
}

// The log names the rate to declare once the breaker knows how far apart the API wants calls.
func TestAdviceToDeclareARate(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	redistest.SetRecord(t, b.rdb, "tidegate:{"+b.dest+"}:breaker", "spaced", 5, "pace_accepted", 500,
		"pace_refused", 430, "pace_from", b.redisNow().UnixMilli(), "last_cooldown", time.Hour.Milliseconds())
	logged := &loggingtest.Buffer{}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(logged, nil))
	stop := b.runHandler(o, newHTTP(t, httpdest.Options{URL: api.URL}))
	b.result(b.enqueue().ID)
	if got := b.breaker().SuggestedRate; got != "120/1m" {
		t.Errorf("suggested: %q", got)
	}
	redistest.Eventually(t, "the opening is logged", func() bool { return strings.Contains(logged.String(), "circuit breaker opened") })
	stop()
	if want := "this API spaces calls: set RATE, about 120 per 1m"; strings.Count(logged.String(), want) != 1 {
		t.Errorf("the log lacks %q:\n%s", want, logged.String())
	}
}

// A call in flight while an outage opened the breaker is a part of it, although the breaker is
// CLOSED again when it ends.
func TestOutageThatIsOverBeforeACallEnds(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	hanging, end := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		status := http.StatusInternalServerError
		switch n := calls.Add(1); {
		case n == 1:
			close(hanging)
			<-end
		case n > 3:
			return nil
		}
		j.Response = &jobs.Response{Status: status}
		return errors.New("answered 500")
	}, publisher.Breaker(breaker.Options{Cooldown: time.Hour, OutageThreshold: 2}))
	id := b.enqueue().ID
	signal(t, "the first call", hanging)
	others := b.enqueueMany(2)
	redistest.Eventually(t, "the outage opened the breaker", func() bool { return b.breaker().IncidentCause == breaker.CauseOutage })
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), b.rdb, b.dest, ""); err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		b.waitStatus(other, jobs.Completed)
	}
	close(end)
	if j := b.waitStatus(id, jobs.Completed); j.Attempt != 0 {
		t.Errorf("attempt %d", j.Attempt)
	}
}

// A publisher that has to stop does not wait for the calls that decide on its jobs.
func TestFatalStopWhileUndecided(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	rdb := redis.NewClient(&redis.Options{Addr: b.rdb.(*redis.Client).Options().Addr, DB: b.rdb.(*redis.Client).Options().DB, MaxRetries: -1})
	o := b.options()
	o.ShutdownTimeout = time.Hour
	p, err := publisher.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Handle(b.dest, publisher.Func(func(_ context.Context, j *jobs.Job) error {
		j.Response = &jobs.Response{Status: http.StatusInternalServerError}
		return errors.New("answered 500")
	}), publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: 1, Per: time.Hour}}})); err != nil {
		t.Fatal(err)
	}
	b.enqueue()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	redistest.Eventually(t, "the call counts", func() bool { return b.breaker().Streak == 1 })
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	if err := signal(t, "the end of Run", ended); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("Run returned %v", err)
	}
}

// What an answer rule or the API itself fails or reschedules is about the job, also with a status
// that counts for an outage.
func TestDecidedAnswersAreNoOutage(t *testing.T) {
	t.Parallel()
	const n, threshold = 15, 10
	for name, row := range map[string]struct {
		status  int
		outcome string
		want    jobs.Status
	}{
		"500 and fail":       {http.StatusInternalServerError, "fail", jobs.Failed},
		"401 and fail":       {http.StatusUnauthorized, "fail", jobs.Failed},
		"503 and reschedule": {http.StatusServiceUnavailable, "reschedule; after=3600", jobs.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			var calls atomic.Int32
			a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				w.Header().Set(httpdest.OutcomeHeader, row.outcome)
				w.WriteHeader(row.status)
			})
			ids := b.enqueueMany(n)
			h := newHTTP(t, httpdest.Options{URL: a.URL, TrustOutcome: true})
			b.run(b.options(), h.Publish, publisher.Concurrency(2), publisher.Breaker(breaker.Options{Cooldown: time.Hour, OutageThreshold: threshold}))
			redistest.Eventually(t, "each job was called", func() bool { return int(calls.Load()) == n })
			for _, id := range ids {
				b.waitStatus(id, row.want)
			}
			if s := b.breaker(); s.State != breaker.Closed {
				t.Errorf("the breaker is %s: %s", s.State, s.Cause)
			}
		})
	}
}

// A job is deferred by outages so often as it says, and then fails.
func TestOutageDefersAtMostMaxReschedules(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := newOutageAPI(t, http.StatusServiceUnavailable, "")
	a.serve(b, 1, breaker.Options{Cooldown: time.Millisecond, OutageThreshold: 1})
	if j := b.waitStatus(b.enqueue(jobs.MaxReschedules(2)).ID, jobs.Failed); j.LastError != "max reschedules (2) exceeded" || a.refused.Load() != 3 {
		t.Errorf("failed with %q after %d calls", j.LastError, a.refused.Load())
	}
	// The most of its 100 reschedules are behind it.
	last := b.enqueue(jobs.Delay(time.Hour)).ID
	if err := b.rdb.HSet(t.Context(), store.TaskKey(b.queue(), last), store.FieldOutage, 98).Err(); err != nil {
		t.Fatal(err)
	}
	b.makeDue(last)
	if j := b.waitStatus(last, jobs.Failed); j.LastError != "max reschedules (100) exceeded" {
		t.Errorf("failed with %q", j.LastError)
	}
}
