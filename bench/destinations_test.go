package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// destinationsPlan is how much is done to measure what each further destination costs.
type destinationsPlan struct {
	counts  []int         // destinations of the worker
	quiet   time.Duration // for which commands of the idle worker are counted
	singles int           // jobs enqueued one at a time at the idle worker
	delayed int           // jobs with a due time
	drained int           // jobs spread over all destinations
}

// destinationsFigures are the figures of one worker: commands a second, numbers, bytes, seconds.
type destinationsFigures struct {
	commands, connections, goroutines, memory float64
	start                                     float64
	pickup50, pickup99                        float64
	due50, due99                              float64
	drain                                     float64
}

// BenchmarkDestinations measures what an idle `tidegate worker` costs with 1, 100 and 1,000
// destinations, how soon it starts a job, and whether more destinations slow it down.
func BenchmarkDestinations(b *testing.B) {
	p := destinationsPlan{counts: []int{1, 100, 1000}, quiet: 10 * time.Second, singles: 100, delayed: 200, drained: 20_000}
	report(b, "benchmarks.md", "destinations", reportDestinations(p, measureDestinations(b, p)))
}

// BenchmarkDestinationsFleet measures what a fleet of idle workers with the same destinations
// costs Redis. The workers share a process.
func BenchmarkDestinationsFleet(b *testing.B) {
	const workers, destinations = 100, 100
	cores, commands := measureFleet(b, workers, destinations, 10*time.Second)
	report(b, "benchmarks.md", "fleet", fmt.Sprintf("%d idle workers with %d destinations: %.1f %% of a core of Redis, %s commands a second.\n",
		workers, destinations, 100*cores, count(commands)))
}

// measureFleet returns how much of a core Redis uses, and the commands a second.
func measureFleet(t testing.TB, workers, destinations int, quiet time.Duration) (cores, commands float64) {
	s := startRedis(t, "everysec")
	defer s.Stop()
	w := startIdle(t, s.Addr(), workers, destinations)
	defer w.stop(t)
	pause(t.Context(), quiet/5) // what workers do at their start is not counted
	s.ResetStats(t)
	before, from := s.cpu(t), time.Now()
	pause(t.Context(), quiet)
	seconds := time.Since(from).Seconds()
	progress(t, fmt.Sprintf("fleet: commands in %.1f s: %v", seconds, s.CommandStats(t)))
	return (s.cpu(t) - before) / seconds, float64(commandsOf(t, s.Server)) / seconds
}

func measureDestinations(t testing.TB, p destinationsPlan) []destinationsFigures {
	out := make([]destinationsFigures, 0, len(p.counts))
	for _, n := range p.counts {
		progress(t, fmt.Sprintf("destinations: %d", n))
		out = append(out, measureDestinationsOf(t, p, n))
	}
	return out
}

func measureDestinationsOf(t testing.TB, p destinationsPlan, n int) (f destinationsFigures) {
	s := startRedis(t, "everysec")
	defer s.Stop()
	a := startArrivals(t)
	names := destinationNames(n)
	client := must(jobs.NewClient(s.rdb, jobs.WithDestinations(names...), jobs.WithLogger(silent)))(t)

	// The last one is the worst case: workers start destinations by name.
	first := must(client.Enqueue(t.Context(), jobs.New(slices.Max(names), payload(usualPayload))))(t)
	started := time.Now()
	w, addr := startWorker(t, s.URL(), a.url, n)
	defer w.stop(t)
	f.start = a.await(t, first.ID).Sub(started).Seconds()

	pause(t.Context(), p.quiet/5) // what a worker does at its start is not counted
	s.ResetStats(t)
	from := time.Now()
	pause(t.Context(), p.quiet)
	f.commands = float64(commandsOf(t, s.Server)) / time.Since(from).Seconds()
	f.connections = s.connections(t)
	f.goroutines = metric(t, addr, "go_goroutines")
	f.memory = memory(w.cmd.Process.Pid, "VmRSS")

	api, stop := serveAPI(t, s, names)
	var pickups []float64
	for range p.singles {
		pause(t.Context(), 20*time.Millisecond+rand.N(180*time.Millisecond))
		enqueued := time.Now()
		id := api.postOne(t, names[rand.IntN(n)])
		pickups = append(pickups, a.await(t, id).Sub(enqueued).Seconds())
	}
	stop()
	f.pickup50, f.pickup99 = median(pickups, itself), percentile(pickups, 99)

	var delayed []*jobs.Spec
	for range p.delayed {
		delayed = append(delayed, jobs.New(names[rand.IntN(n)], payload(usualPayload), jobs.Delay(time.Second+rand.N(4*time.Second))))
	}
	var lateness []float64
	for _, r := range must(client.EnqueueMany(t.Context(), delayed))(t) {
		check(t, r.Err)
		lateness = append(lateness, max(0, a.await(t, r.Job.ID).Sub(r.Job.AvailableAt).Seconds()))
	}
	f.due50, f.due99 = median(lateness, itself), percentile(lateness, 99)

	spread := make([]*jobs.Spec, p.drained)
	for i := range spread {
		spread[i] = jobs.New(names[i%n], payload(usualPayload))
	}
	before := a.count()
	from = time.Now()
	for _, r := range must(client.EnqueueMany(t.Context(), spread))(t) {
		check(t, r.Err)
	}
	poll(t, "all jobs are published", func() bool { return a.count()-before >= p.drained })
	f.drain = time.Since(from).Seconds()
	return f
}

// destinationNames returns the names of startWorker's destinations.
func destinationNames(n int) []string {
	names := []string{destination}
	for i := 1; i < n; i++ {
		names = append(names, fmt.Sprintf("%s-%d", destination, i))
	}
	return names
}

// arrivals is an API that answers at once and keeps when each job has reached it.
type arrivals struct {
	url  string
	mu   sync.Mutex
	at   map[string]time.Time // by idempotency key, which is the id of the job
	news chan struct{}        // closed at the next arrival
}

func startArrivals(t testing.TB) *arrivals {
	t.Helper()
	a := &arrivals{at: map[string]time.Time{}, news: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		if id := r.Header.Get("Idempotency-Key"); a.at[id].IsZero() {
			a.at[id] = now
		}
		close(a.news)
		a.news = make(chan struct{})
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

// await returns when the job reached the API.
func (a *arrivals) await(t testing.TB, id string) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		a.mu.Lock()
		at, news := a.at[id], a.news
		a.mu.Unlock()
		if !at.IsZero() {
			return at
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("job %s has not reached the API: %v", id, ctx.Err())
		}
	}
}

// scraper asks without keeping connections, as an orchestrator does.
var scraper = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// metric reads one metric without labels of a process.
func metric(t testing.TB, addr, name string) float64 {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", http.NoBody))(t)
	resp := must(scraper.Do(req))(t)
	defer resp.Body.Close()
	for line := range strings.Lines(string(must(io.ReadAll(resp.Body))(t))) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return must(strconv.ParseFloat(strings.TrimSpace(value), 64))(t)
		}
	}
	t.Fatalf("/metrics has no %s", name)
	return 0
}

// percentile returns the smallest value that p percent of the values do not exceed.
func percentile(values []float64, p int) float64 {
	all := slices.Sorted(slices.Values(values))
	return all[max(0, (len(all)*p+99)/100-1)]
}

func reportDestinations(p destinationsPlan, figures []destinationsFigures) string {
	rows := [][]string{
		{"destinations of one worker"},
		{"Redis commands a second, idle"},
		{"connections to Redis, idle"},
		{"goroutines, idle"},
		{"memory (RSS), idle"},
		{"start of the process until its first call"},
		{"job enqueued at an idle worker until its call, p50 / p99"},
		{"job with a due time, lateness of its call, p50 / p99"},
		{count(float64(p.drained)) + " jobs over all destinations"},
	}
	for i, f := range figures {
		for r, cell := range []string{
			count(float64(p.counts[i])), count(f.commands), count(f.connections), count(f.goroutines), megabytes(f.memory),
			fmt.Sprintf("%.1f s", f.start), millis(f.pickup50) + " / " + millis(f.pickup99), millis(f.due50) + " / " + millis(f.due99),
			fmt.Sprintf("%.1f s", f.drain),
		} {
			rows[r] = append(rows[r], cell)
		}
	}
	return table(1, rows)
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	for want, p := range map[float64]int{1: 1, 50: 50, 99: 99, 100: 100} {
		values := make([]float64, 100)
		for i := range values {
			values[i] = float64(100 - i)
		}
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %d of 1 to 100 = %v", p, got)
		}
	}
	if got := percentile([]float64{7}, 99); got != 7 {
		t.Errorf("percentile 99 of one value = %v", got)
	}
}

func TestEveryFigureOfDestinationsIsMeasured(t *testing.T) {
	t.Parallel()
	p := destinationsPlan{counts: []int{1, 3}, quiet: time.Second, singles: 3, delayed: 3, drained: 30}
	figures := measureDestinations(t, p)
	for i, f := range figures {
		for name, v := range map[string]float64{
			"commands": f.commands, "connections": f.connections, "goroutines": f.goroutines, "start": f.start,
			"pickup50": f.pickup50, "pickup99": f.pickup99, "drain": f.drain,
		} {
			if v <= 0 {
				t.Errorf("%d destinations: %s = %v, want more than 0", p.counts[i], name, v)
			}
		}
	}
	if text := reportDestinations(p, figures); strings.Count(text, "\n") != 10 {
		t.Errorf("report:\n%s", text)
	}
}

func TestFleetIsMeasured(t *testing.T) {
	t.Parallel()
	if cores, commands := measureFleet(t, 2, 3, time.Second); cores <= 0 || commands <= 0 {
		t.Errorf("%v of a core, %v commands a second: want more than 0", cores, commands)
	}
}
