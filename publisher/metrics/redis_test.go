package metrics_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// bare is Metrics that watch nothing.
type bare struct {
	*metrics.Metrics
	t   *testing.T
	reg *prometheus.Registry
}

func newBare(t *testing.T) *bare {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, metrics.Options{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	return &bare{m, t, reg}
}

// count adds up the series of a counter.
func (b *bare) count(name string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// ofQueues are the metrics that are read from Redis.
func ofQueues(values map[string]float64) []string {
	seen := map[string]bool{}
	for name := range values {
		base, _, _ := strings.Cut(name, "{")
		for _, m := range []string{"jobs", "jobs_ready", "jobs_held", "jobs_near_expiration", "oldest_pending_age_seconds", "destination_paused"} {
			if base == m {
				seen[base] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// While Redis is away a scrape says so, keeps to what the process knows itself, and
// keeps nobody waiting.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const timeout, slack = 3 * time.Second, 30 * time.Second
	queues := []string{"destination_paused", "jobs", "jobs_held", "jobs_near_expiration", "jobs_ready", "oldest_pending_age_seconds"}
	server := redistest.Start(t)
	r := newFixture(t, server, fakeapi.Options{})
	in := r.make(metrics.Options{Timeout: timeout}, nil, breaker.Options{}).run()
	r.ended(r.enqueue(nil), jobs.Completed)
	for _, outage := range []struct {
		name     string
		down, up func()
	}{
		{"frozen", server.Pause, server.Resume},
		{"gone", server.Kill, server.Restart},
	} {
		got := in.values()
		if diff := cmp.Diff(queues, ofQueues(got)); diff != "" || got["redis_up"] != 1 {
			t.Fatalf("before it is %s: redis_up %v, metrics of queues (-want +got)\n%s", outage.name, got["redis_up"], diff)
		}
		outage.down()
		began := time.Now()
		got = in.values()
		if took := time.Since(began); took > timeout+slack {
			t.Errorf("%s: a scrape took %s, want at most %s", outage.name, took, timeout)
		}
		if left := ofQueues(got); len(left) != 0 || got["redis_up"] != 0 {
			t.Errorf("%s: redis_up %v, and there are %v", outage.name, got["redis_up"], left)
		}
		if got[`publish_attempts_total{result="success"}`] != 1 || got[`circuit_breaker_state{state="closed"}`] != 1 {
			t.Errorf("%s: what the process knows itself is missing: %v", outage.name, got)
		}
		redistest.Eventually(t, "the worker finds that it cannot fetch", func() bool { return in.values()["worker_fetching"] == 0 })
		outage.up()
		redistest.Eventually(t, "it is back", func() bool {
			got := in.values()
			return got["redis_up"] == 1 && got["worker_fetching"] == 1 && cmp.Equal(queues, ofQueues(got))
		})
	}
}

// A client as go-redis makes it waits for longer than its context lets it; a scrape does
// not.
func TestScrapeWithAClientThatIgnoresDeadlines(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	server := redistest.Start(t)
	r := newFixture(t, server, fakeapi.Options{})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	in := r.make(metrics.Options{Redis: rdb, Timeout: timeout, MaxAge: time.Nanosecond}, nil, breaker.Options{}).run()
	if got := in.values(); got["redis_up"] != 1 {
		t.Fatalf("redis_up %v", got["redis_up"])
	}
	server.Pause()
	for range 2 {
		began := time.Now()
		got := in.values()
		if took := time.Since(began); took > 20*time.Second || got["redis_up"] != 0 {
			t.Errorf("a scrape took %s and says redis_up %v; want at most %s and 0", took, got["redis_up"], timeout)
		}
	}
	server.Resume()
	redistest.Eventually(t, "it is back", func() bool { return in.values()["redis_up"] == 1 })
}

// fill puts n jobs into each list of a queue, by their ids alone.
func fill(t testing.TB, rdb redis.UniversalClient, destination string, n int) {
	t.Helper()
	queue := store.DefaultNamespace.Queue(destination, store.Default)
	script := redis.NewScript(`
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('LPUSH', KEYS[1], 'filled-' .. i)
  for k = 2, #KEYS do redis.call('ZADD', KEYS[k], 4102444800000 + i, 'filled-' .. i) end
end`)
	keys := []string{
		store.PendingKey(queue), store.ScheduledKey(queue), store.RetryKey(queue), store.DueKey(queue), store.ExpiryKey(queue), "asynq:{" + queue + "}:completed",
	}
	const portion = 20_000
	for from := 1; from <= n; from += portion {
		if err := script.Run(t.Context(), rdb, keys, from, min(n, from+portion-1)).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
}

// A scrape costs the same commands for each destination, whatever the number of jobs.
func TestScrapeCostsTheSameWhateverTheBacklog(t *testing.T) {
	t.Parallel()
	const many = 20_000
	server := redistest.Start(t)
	r := newFixture(t, server, fakeapi.Options{})
	in := r.make(metrics.Options{}, nil, breaker.Options{}) // does not run: it asks for nothing itself
	cost := func() map[string]int64 {
		t.Helper()
		server.ResetStats(t)
		in.values()
		return server.CommandStats(t)
	}
	r.enqueueMany(10, jobs.TTL(time.Hour))
	cost() // the scripts are loaded
	few := cost()
	fill(t, r.rdb, r.dest, many)
	got := in.values()
	if got["jobs_ready"] != 10+many || got[`jobs{status="completed"}`] != many || got[`jobs{status="pending"}`] != 10+2*many || got["jobs_near_expiration"] != 0 {
		t.Fatalf("%v ready, %v completed, %v pending, %v near their end",
			got["jobs_ready"], got[`jobs{status="completed"}`], got[`jobs{status="pending"}`], got["jobs_near_expiration"])
	}
	if diff := cmp.Diff(few, cost()); diff != "" {
		t.Errorf("commands of a scrape (-10 jobs +%d jobs)\n%s", many, diff)
	}
	// One script for each priority that has jobs, which counts the jobs that failed lately, and
	// their expiries together; the same again, as no worker serves the destination; and one for the limits.
	if few["evalsha"] != 3 || few["zcount"] != 6 {
		t.Errorf("a scrape of one destination: %v", few)
	}
	t.Logf("commands of a scrape, those in scripts included: %v", few)
}

// Where more than a thousand cancelled jobs lie before the one that is next in line,
// nobody knows its age: better none than 0.
func TestUnknownAge(t *testing.T) {
	t.Parallel()
	r := newFixture(t, redistest.Database(t), fakeapi.Options{})
	in := r.make(metrics.Options{}, nil, breaker.Options{})
	age := func() (float64, bool) {
		v, known := in.values()["oldest_pending_age_seconds"]
		return v, known
	}
	if v, known := age(); v != 0 || !known {
		t.Errorf("without a job: %v (%v), want 0", v, known)
	}
	fill(t, r.rdb, r.dest, 2000) // of which Redis has no record, as of those that are gone
	r.enqueue(nil)
	if v, known := age(); known {
		t.Errorf("behind 2000 that are gone: %v, want none", v)
	}
}

// What was read is good for MaxAge, and scrapes that come together share one reading.
func TestScrapesShareAReading(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newFixture(t, server, fakeapi.Options{})
	readings := func() int64 { return server.CommandStats(t)["zcount"] / 6 } // of the one priority with jobs, which no worker serves
	r.enqueue(nil)
	together := func(in *instance) {
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { in.values() })
		}
		group.Wait()
	}
	long := r.make(metrics.Options{MaxAge: time.Hour}, nil, breaker.Options{})
	server.ResetStats(t)
	together(long)
	if n := readings(); n != 1 {
		t.Errorf("20 scrapes at the same time read %d times, want once", n)
	}
	r.enqueue(nil)
	if got := long.values()["jobs_ready"]; got != 1 || readings() != 1 {
		t.Errorf("within MaxAge: %v ready after %d readings, want what was read at first", got, readings())
	}
	short := r.make(metrics.Options{MaxAge: 30 * time.Millisecond}, nil, breaker.Options{})
	server.ResetStats(t)
	began := time.Now()
	redistest.Eventually(t, "read again", func() bool {
		short.values()
		return readings() >= 4
	})
	if took := time.Since(began); took < 3*30*time.Millisecond {
		t.Errorf("four readings within %s, of which each is good for 30 ms", took)
	}
	each := r.make(metrics.Options{}, nil, breaker.Options{}) // MaxAge below 0
	server.ResetStats(t)
	for range 5 {
		each.values()
	}
	if n := readings(); n != 5 {
		t.Errorf("5 scrapes that are to be fresh read %d times", n)
	}
}

// A reading that failed is not repeated for each scrape either.
func TestScrapesShareAFailedReading(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	server := redistest.Start(t)
	r := newFixture(t, server, fakeapi.Options{})
	in := r.make(metrics.Options{MaxAge: time.Hour, Timeout: timeout}, nil, breaker.Options{})
	server.Pause()
	defer server.Resume()
	began := time.Now()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if got := in.values()["redis_up"]; got != 0 {
				t.Errorf("redis_up %v", got)
			}
		})
	}
	group.Wait()
	if took := time.Since(began); took > 15*timeout {
		t.Errorf("20 scrapes took %s, want as long as one, %s", took, timeout)
	}
}
