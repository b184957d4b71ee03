package publisher_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakelimit"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// hopeless is the path of jobs that the API never accepts.
const hopeless = "/hopeless"

// hopelessAPI refuses the calls of one path with a status and headers, and accepts all others.
func hopelessAPI(t *testing.T, status int, header http.Header) *fakehttp.Recorder {
	return fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, hopeless) {
			for name := range header {
				w.Header().Set(name, header.Get(name))
			}
			w.WriteHeader(status)
			return
		}
		<-time.After(20 * time.Millisecond) // good jobs leave the machine to others
	})
}

// waiting are the jobs that have not ended.
func (b *fixture) waiting(ids []string) (out []string) {
	for _, id := range ids {
		if !b.record(id).Status.Final() {
			out = append(out, id)
		}
	}
	return out
}

// bring makes those of the jobs due that wait by themselves, not for the breaker, and returns when
// they were called again.
func (b *fixture) bring(ids []string) {
	b.t.Helper()
	for _, id := range ids {
		n := b.versions(id)
		if j := b.record(id); j.Status != jobs.Pending || store.Reason(j.ReasonCode).Code() == store.ReasonBreakerOpen {
			continue
		}
		err := b.rdb.ZAddArgs(b.t.Context(), store.DueKey(b.queue()), redis.ZAddArgs{XX: true, Members: []redis.Z{{Score: 1, Member: id}}}).Err()
		if err != nil {
			b.t.Fatal(err)
		}
		redistest.Eventually(b.t, "job "+id+" is called again", func() bool { return b.versions(id) != n })
	}
}

// versions is the length of a job's history.
func (b *fixture) versions(id string) string {
	return b.rdb.HGet(b.t.Context(), store.TaskKey(b.queue(), id), store.FieldVersions).Val()
}

// goodJobs keeps so many jobs on their way that the API accepts: each that ends is followed by another.
type goodJobs struct {
	b        *fixture
	opts     []jobs.Option
	bad      []string
	accepted atomic.Int64
	stop     atomic.Bool
}

func (g *goodJobs) begin(n int) { g.b.enqueueMany(n, g.opts...) }

func (g *goodJobs) ended(e publisher.JobEvent) {
	if slices.Contains(g.bad, e.Job.ID) || e.Result == publisher.Rescheduled || e.Result == publisher.Requeued {
		return
	}
	if e.Result != publisher.Completed {
		g.b.t.Errorf("a good job ended: %s, %s", e.Result, e.LastError)
	}
	if g.accepted.Add(1); !g.stop.Load() {
		g.begin(1)
	}
}

// A job that the API always refuses holds no other job, and fails with a sentence.
func TestHopelessJobs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		jobs   int
		header http.Header
		key    bool
	}{
		"one":                  {1, nil, false},
		"one with a hint":      {1, http.Header{"Retry-After-Ms": {"500"}}, false},
		"three":                {3, nil, false},
		"three with a hint":    {3, http.Header{"Retry-After-Ms": {"500"}}, false},
		"one of a key, a hint": {1, http.Header{"Retry-After-Ms": {"500"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			a := hopelessAPI(t, http.StatusTooManyRequests, row.header)
			var opts []jobs.Option
			if row.key {
				opts = append(opts, jobs.Key("k"))
			}
			bad := b.enqueueMany(row.jobs, append(opts, jobs.Path(hopeless))...)
			good := &goodJobs{b: b, opts: opts, bad: bad}
			for range 2 {
				po := b.options()
				po.Observers = []publisher.Observer{{OnJob: good.ended}}
				h := newHTTP(t, httpdest.Options{URL: a.URL})
				b.run(po, h.Publish, publisher.Concurrency(3), publisher.MaxRefusedAlone(4),
					publisher.Breaker(breaker.Options{Cooldown: 500 * time.Millisecond, CooldownJitter: -1, MaxCooldown: time.Second}))
			}
			good.begin(10)
			for waiting := bad; len(waiting) > 0; waiting = b.waiting(bad) {
				b.bring(waiting)
				n := good.accepted.Load()
				redistest.Eventually(t, "good jobs are called", func() bool { return good.accepted.Load() > n+10 })
			}
			good.stop.Store(true)
			sentence := regexp.MustCompile(`^refused \d+ times while [1-9]\d* other calls were accepted$`)
			for _, id := range bad {
				if j := b.get(id); j.Status != jobs.Failed || !sentence.MatchString(j.LastError) || j.Attempt != 0 {
					t.Errorf("job %s is %s, attempt %d: %q", id, j.Status, j.Attempt, j.LastError)
				}
			}
			b.wantIncidents(max(3, 3*row.jobs))
			alone, err := b.client.RefusedAlone(t.Context(), b.dest)
			if r := alone[b.dest]; err != nil || r.Jobs != row.jobs || r.Failed != row.jobs || r.Refusals < 4*row.jobs || !slices.Contains(bad, r.Job) || !sentence.MatchString(r.Text) {
				t.Errorf("refused alone: %+v, %v", r, err)
			}
		})
	}
}

// wantIncidents fails the test if the breaker opened more often.
func (b *fixture) wantIncidents(most int) {
	b.t.Helper()
	incidents := 0
	for _, e := range b.breakerHistory() {
		if e.From == breaker.Closed && e.To == breaker.Open {
			incidents++
		}
	}
	if incidents > most {
		b.t.Errorf("the breaker opened %d times, want at most %d", incidents, most)
	}
}

// A job whose call makes the API fail is no outage where the API accepts others: it fails, and holds
// no other job for longer than the first outage.
func TestHopelessFailures(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		opts    []jobs.Option
		attempt int
	}{
		"without a policy": {nil, 0},
		"a retry":          {[]jobs.Option{jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second})}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			a := hopelessAPI(t, http.StatusInternalServerError, nil)
			bad := b.enqueueMany(16, append(row.opts, jobs.Path(hopeless))...)
			good := &goodJobs{b: b, bad: bad}
			po := b.options()
			po.Observers = []publisher.Observer{{OnJob: good.ended}}
			h := newHTTP(t, httpdest.Options{URL: a.URL})
			good.begin(10)
			b.run(po, h.Publish, publisher.Concurrency(3), publisher.Breaker(breaker.Options{Cooldown: 300 * time.Millisecond, CooldownJitter: -1}))
			for _, id := range bad {
				if j := b.waitStatus(id, jobs.Failed); j.LastError != "answered 500 Internal Server Error" || j.Attempt != row.attempt {
					t.Errorf("job %s: attempt %d, %q", id, j.Attempt, j.LastError)
				}
			}
			good.stop.Store(true)
		})
	}
}

// An API that is at its limit refuses no job alone, and an outage is not its jobs' fault.
func TestLimitOfAllIsNotBlamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes several windows")
	}
	for name, o := range map[string]fakeapi.Options{
		"a window":             {Limiter: fakeapi.FixedWindow{Quota: 20, Window: time.Second}},
		"sliding":              {Limiter: fakelimit.SlidingWindow{Quota: 10, Window: 500 * time.Millisecond}},
		"one call, and a hint": {Limiter: fakeapi.FixedWindow{Quota: 1, Window: 50 * time.Millisecond}, Hints: fakeapi.RetryAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			o.Latency = 5 * time.Millisecond
			a := fakeapi.New(o)
			var mu sync.Mutex
			alone := ""
			po := b.options()
			po.Observe(publisher.Observer{OnJob: func(e publisher.JobEvent) {
				mu.Lock()
				defer mu.Unlock()
				if e.RefusedAlone {
					alone += fmt.Sprintf("%s: %v; ", e.Job.ID, e.Err)
				}
			}})
			n := 100
			if strings.HasPrefix(name, "one") {
				n = 5
			}
			ids := b.enqueueMany(n)
			b.run(po, httpTo(t, a).Publish, publisher.Concurrency(5), publisher.Breaker(breaker.Options{Cooldown: 200 * time.Millisecond, CooldownJitter: -1}))
			for _, id := range ids {
				b.waitStatus(id, jobs.Completed)
			}
			mu.Lock()
			defer mu.Unlock()
			if alone != "" {
				t.Errorf("refused alone: %s", alone)
			}
		})
	}
}
