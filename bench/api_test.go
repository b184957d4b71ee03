package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/jobs"
)

// apiPlan is how much is done to measure the HTTP API.
type apiPlan struct {
	rounds int           // of batches; the report has medians
	jobs   int           // of one round of batches
	single time.Duration // of one round of single enqueues
	listen time.Duration // for which Redis's commands are counted
}

// apiFigures are what was measured.
type apiFigures struct {
	batches []batches
	singles []singles
	events  []subscribed
}

// BenchmarkAPI measures how fast jobs are enqueued over HTTP, in batches beside the Go
// client in the same run and one by one under load, and what subscribers of events cost
// Redis. It takes two minutes.
func BenchmarkAPI(b *testing.B) {
	p := apiPlan{rounds: 3, jobs: 100_000, single: 5 * time.Second, listen: 10 * time.Second}
	report(b, "benchmarks.md", "api", measureAPI(b, p).report(p))
}

func measureAPI(t testing.TB, p apiPlan) (f apiFigures) {
	progress(t, "api: batches")
	f.batches = startAPI(t).enqueueBatches(t, p)
	progress(t, "api: single enqueues")
	f.singles = startAPI(t).enqueueSingles(t, p)
	progress(t, "api: subscribers of events")
	s := startAPI(t)
	s.fresh(t)
	for _, n := range []int{0, 1, 200} {
		f.events = append(f.events, s.subscribed(t, n, p.listen))
	}
	return f
}

// apiServer is a Redis and "tidegate api".
type apiServer struct {
	*redisServer
	http *http.Client
	url  string
}

func startAPI(t testing.TB) *apiServer {
	t.Helper()
	s, _ := serveAPI(t, startRedis(t, "everysec"), []string{destination})
	return s
}

// serveAPI starts "tidegate api" for a Redis and returns how to stop it.
func serveAPI(t testing.TB, redis *redisServer, destinations []string) (s *apiServer, stop func()) {
	t.Helper()
	s = &apiServer{redisServer: redis}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	s.http = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	env := []string{"REDIS_URL=" + s.URL(), "LISTEN_ADDR=127.0.0.1:0", "LOG_FORMAT=json"}
	for i, name := range destinations {
		env = append(env, fmt.Sprintf("DESTINATION_%d_NAME=%s", i, name), fmt.Sprintf("DESTINATION_%d_URL=http://127.0.0.1:9/", i))
	}
	p := startProcess(t, roleTidegate, env, "api")
	var started logEntry
	check(t, p.await(t.Context(), &p.log, logged("api started", &started)))
	s.url = started.URL
	return s, func() { p.stop(t) }
}

// postOne enqueues a job and returns its id.
func (s *apiServer) postOne(t testing.TB, destination string) string {
	t.Helper()
	var buf bytes.Buffer
	body := `{"destination":"` + destination + `","payload":` + string(payload(usualPayload)) + `}`
	check(t, s.post(t.Context(), jsonType, strings.NewReader(body), &buf))
	var job struct{ ID string }
	check(t, json.Unmarshal(buf.Bytes(), &job))
	return job.ID
}

// line is a job as it is sent.
var line = `{"destination":"` + destination + `","payload":` + string(payload(usualPayload)) + `}`

// fresh empties Redis, and lets both clients read again what they need first.
func (s *apiServer) fresh(t testing.TB) {
	t.Helper()
	check(t, s.rdb.FlushDB(t.Context()).Err())
	must(s.client.Enqueue(t.Context(), jobs.New(destination, payload(usualPayload))))(t)
	check(t, s.post(t.Context(), jsonType, strings.NewReader(line), new(bytes.Buffer)))
}

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// post enqueues a body; the answer goes into buf.
func (s *apiServer) post(ctx context.Context, contentType string, body io.Reader, buf *bytes.Buffer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/jobs", body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", contentType)
	answer, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	buf.Reset()
	if _, err := buf.ReadFrom(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("enqueue: %s: %.200s", answer.Status, buf.String())
	}
	return nil
}

// postMany enqueues n jobs and checks that all are accepted.
func (s *apiServer) postMany(ctx context.Context, contentType, body string, n int, buf *bytes.Buffer) error {
	if err := s.post(ctx, contentType, strings.NewReader(body), buf); err != nil {
		return err
	}
	var doc struct{ Accepted, Rejected int }
	if err := json.Unmarshal(buf.Bytes(), &doc); err != nil {
		return err
	}
	if doc.Accepted != n || doc.Rejected != 0 {
		return fmt.Errorf("enqueue: %d accepted and %d rejected of %d", doc.Accepted, doc.Rejected, n)
	}
	return nil
}

// batches is how fast jobs were enqueued in one way, in jobs a second, by round.
type batches struct {
	way  string
	each []float64
}

func (b batches) median() float64 { return median(b.each, itself) }

const batchSize = 1000

// enqueueBatches enqueues the same jobs in each way, one way after the other in each
// round.
func (s *apiServer) enqueueBatches(t testing.TB, p apiPlan) []batches {
	all := specs(p.jobs, usualPayload)
	array := "[" + strings.TrimSuffix(strings.Repeat(line+",", batchSize), ",") + "]"
	arrays := func(connections int) func() error {
		return func() error {
			var left atomic.Int64
			left.Store(int64(p.jobs / batchSize))
			group, ctx := errgroup.WithContext(t.Context())
			for range connections {
				group.Go(func() error {
					var buf bytes.Buffer
					for left.Add(-1) >= 0 {
						if err := s.postMany(ctx, jsonType, array, batchSize, &buf); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return group.Wait()
		}
	}
	lines := strings.Repeat(line+"\n", p.jobs)
	ways := []struct {
		name string
		do   func() error
	}{
		{"Go client, `EnqueueMany` of all", func() error {
			for _, r := range must(s.client.EnqueueMany(t.Context(), all))(t) {
				check(t, r.Err)
			}
			return nil
		}},
		{"HTTP, lines, one request", func() error { return s.postMany(t.Context(), linesType, lines, p.jobs, new(bytes.Buffer)) }},
		{"HTTP, arrays of 1,000, one after the other", arrays(1)},
		{"HTTP, arrays of 1,000, 4 connections", arrays(4)},
	}
	out := make([]batches, len(ways))
	for range p.rounds {
		for i, way := range ways {
			s.fresh(t)
			started := time.Now()
			check(t, way.do())
			out[i].way = way.name
			out[i].each = append(out[i].each, float64(p.jobs)/time.Since(started).Seconds())
		}
	}
	return out
}

// singles is how jobs were enqueued one by one.
type singles struct {
	way         string
	connections int
	perSecond   float64
	p50, p99    time.Duration
}

// enqueueSingles enqueues one by one, as fast as responses come.
func (s *apiServer) enqueueSingles(t testing.TB, p apiPlan) (out []singles) {
	for _, connections := range []int{1, 16, 128} {
		for _, way := range []struct {
			name string
			do   func(context.Context, *bytes.Buffer) error
		}{
			{"Go client, `Enqueue`", func(ctx context.Context, _ *bytes.Buffer) error {
				_, err := s.client.Enqueue(ctx, jobs.New(destination, payload(usualPayload)))
				return err
			}},
			{"HTTP", func(ctx context.Context, buf *bytes.Buffer) error {
				return s.post(ctx, jsonType, strings.NewReader(line), buf)
			}},
		} {
			s.fresh(t)
			took, elapsed := load(t, connections, p.single, way.do)
			out = append(out, singles{
				way: way.name, connections: connections, perSecond: float64(len(took)) / elapsed.Seconds(),
				p50: took[len(took)/2], p99: took[len(took)*99/100],
			})
		}
	}
	return out
}

// load calls do from a number of goroutines for a while and returns how long each call
// took, sorted.
func load(t testing.TB, goroutines int, length time.Duration, do func(context.Context, *bytes.Buffer) error) ([]time.Duration, time.Duration) {
	t.Helper()
	each := make([][]time.Duration, goroutines)
	started := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	for i := range goroutines {
		group.Go(func() error {
			var buf bytes.Buffer
			for time.Since(started) < length {
				began := time.Now()
				if err := do(ctx, &buf); err != nil {
					return err
				}
				each[i] = append(each[i], time.Since(began))
			}
			return nil
		})
	}
	check(t, group.Wait())
	elapsed := time.Since(started)
	took := slices.Concat(each...)
	slices.Sort(took)
	if len(took) == 0 {
		t.Fatalf("nothing was done in %v", length)
	}
	return took, elapsed
}

// report is the section of docs/benchmarks.md.
func (f apiFigures) report(p apiPlan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s jobs of 200 bytes in each round; medians of %d rounds, in turns.\n\n", count(float64(p.jobs)), p.rounds)
	rows := [][]string{{"enqueue in batches", "jobs/s", "of the Go client's"}}
	for _, r := range f.batches {
		rows = append(rows, []string{r.way, count(r.median()), fmt.Sprintf("%.2f", r.median()/f.batches[0].median())})
	}
	b.WriteString(table(1, rows))
	fmt.Fprintf(&b, "\nOne by one, each connection as fast as responses come, for %s:\n\n", p.single)
	rows = [][]string{{"enqueue one by one", "connections", "jobs/s", "p50", "p99"}}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
	for _, s := range f.singles {
		rows = append(rows, []string{s.way, strconv.Itoa(s.connections), count(s.perSecond), ms(s.p50), ms(s.p99)})
	}
	b.WriteString(table(1, rows))
	fmt.Fprintf(&b, "\nCommands that Redis runs a second, of all clients together and within scripts, while nothing happens and\nwhile %d jobs a second are enqueued and cancelled (the first line is what that takes by itself):\n\n", cancelsPerSecond)
	rows = [][]string{{"subscribers of `/v1/events`", "quiet", "busy", "events that each receives"}}
	for _, e := range f.events {
		received := "–"
		if e.subscribers > 0 {
			received = fmt.Sprintf("%.0f %%", e.received*100)
		}
		rows = append(rows, []string{strconv.Itoa(e.subscribers), fmt.Sprintf("%.1f", e.quiet), fmt.Sprintf("%.1f", e.busy), received})
	}
	b.WriteString(table(1, rows))
	return b.String()
}

func TestEveryFigureOfTheAPIIsMeasured(t *testing.T) {
	t.Parallel()
	p := apiPlan{rounds: 1, jobs: 2000, single: 100 * time.Millisecond, listen: time.Second}
	f := measureAPI(t, p)
	if len(f.batches) != 4 || len(f.singles) != 6 || len(f.events) != 3 {
		t.Fatalf("%d, %d and %d figures", len(f.batches), len(f.singles), len(f.events))
	}
	for _, r := range f.batches {
		if r.median() <= 0 {
			t.Errorf("%s: %v jobs/s", r.way, r.median())
		}
	}
	for _, s := range f.singles {
		if s.perSecond <= 0 || s.p50 <= 0 || s.p99 < s.p50 {
			t.Errorf("%+v", s)
		}
	}
	for _, e := range f.events[1:] {
		if e.received < 1 || e.busy <= 0 {
			t.Errorf("%+v, want all events received", e)
		}
	}
	// 200 subscribers cost about what one costs, not 200 times as much: the figures are of a second each,
	// in which a busy machine does more or less.
	if one, many := f.events[1], f.events[2]; many.quiet > 4*one.quiet+20 || many.busy > 4*one.busy+20 {
		t.Errorf("one subscriber %+v, 200 %+v", one, many)
	}
	for _, want := range []string{"| HTTP, lines, one request ", "| 200 ", "p99"} {
		if text := f.report(p); !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
