package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// asked is a worker that can be asked how it is.
type asked struct {
	t    *testing.T
	addr string
	stop func() error
}

// runAsked runs a worker and returns once it serves health.
func runAsked(t *testing.T, environ ...string) *asked {
	t.Helper()
	addr := make(chan string, 1)
	log := slog.New(slog.NewJSONHandler(writerFunc(func(line []byte) (int, error) {
		var said struct{ Msg, Addr string }
		if json.Unmarshal(line, &said) == nil && said.Msg == "health and metrics" {
			addr <- said.Addr
		}
		return len(line), nil
	}), nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	environ = append([]string{"OPS_ADDR=127.0.0.1:0"}, environ...)
	cfg := load(t, environ...)
	go func() { ended <- RunWorker(ctx, cfg, log, Process{Version: "v1", Commit: "c", Environ: environ}) }()
	a := &asked{t: t}
	over := false
	a.stop = func() error {
		if over {
			return nil
		}
		over = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { _ = a.stop() })
	select {
	case a.addr = <-addr:
	case <-time.After(time.Minute):
		t.Fatal("no health within a minute")
	}
	return a
}

// get asks for a path; status 0 if nobody answers.
func (a *asked) get(path string) (status int, body string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.addr+path, http.NoBody)
	if err != nil {
		a.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// report asks whether the worker is ready, and checks that the status of the answer
// says the same, and that the worker lives in any case.
func (a *asked) report() health.Report {
	a.t.Helper()
	if status, body := a.get("/healthz"); status != http.StatusOK || body != "ok\n" {
		a.t.Errorf("/healthz: %d %q", status, body)
	}
	status, body := a.get("/readyz")
	var r health.Report
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		a.t.Fatalf("/readyz: %d %q: %v", status, body, err)
	}
	want := http.StatusServiceUnavailable
	if r.Status == health.Ready {
		want = http.StatusOK
	}
	if status != want {
		a.t.Errorf("/readyz: %d, and the report says %q", status, r.Status)
	}
	return r
}

// awaits waits for a report.
func (a *asked) awaits(what string, within time.Duration, ok func(health.Report) bool) health.Report {
	a.t.Helper()
	var r health.Report
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(max(within, time.Minute)); ; <-poll.C {
		if r = a.report(); ok(r) {
			return r
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("not within %s: %s; %+v", within, what, r)
		}
	}
}

func isReady(r health.Report) bool { return r.Status == health.Ready }

func is(state string) func(health.Report) bool {
	return func(r health.Report) bool { return len(r.Destinations) > 0 && r.Destinations[0].State == state }
}

// fetching is what a worker says of the destination shop when all is well.
var fetching = health.Destination{Name: "shop", State: "fetching", Concurrency: 10}

func shopOn(redisURL, url string) []string {
	return []string{"REDIS_URL=" + redisURL, "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=" + url}
}

// A worker is not ready before Redis has been reached, and says so; then it is.
func TestNotReadyBeforeRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	_, url := startAPI(t, fakeapi.Options{})
	a := runAsked(t, shopOn(server.URL(), url)...)
	want := health.Report{
		Status: health.NotReady, Reason: "the worker starts: Redis has not been reached yet", Redis: "not connected yet",
		Destinations: []health.Destination{},
	}
	if diff := cmp.Diff(want, a.report()); diff != "" {
		t.Errorf("before Redis (-want +got)\n%s", diff)
	}
	if status, body := a.get("/metrics"); status != http.StatusOK || !strings.Contains(body, "go_goroutines ") {
		t.Errorf("/metrics before Redis: %d %.200q", status, body)
	}
	server.Restart()
	r := a.awaits("ready", 20*time.Second, isReady)
	if diff := cmp.Diff(health.Report{Status: health.Ready, Redis: "ok", Destinations: []health.Destination{fetching}}, r); diff != "" {
		t.Errorf("with Redis (-want +got)\n%s", diff)
	}
	if _, body := a.get("/metrics"); !strings.Contains(body, `tidegate_worker_fetching{destination="shop"} 1`) ||
		!strings.Contains(body, `tidegate_build_info{commit="c",goversion=`) || !strings.Contains(body, `version="v1"} 1`) {
		t.Errorf("/metrics:\n%s", body)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// Redis goes and comes back: the worker says so while it lives on.
func TestNotReadyWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for _, row := range []struct {
		name     string
		down, up func(*redistest.Server)
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
		{"frozen", (*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			_, url := startAPI(t, fakeapi.Options{})
			a := runAsked(t, shopOn(server.URL(), url)...)
			a.awaits("ready", 20*time.Second, isReady)
			row.down(server)
			r := a.awaits("not ready", 10*time.Second, func(r health.Report) bool { return !isReady(r) })
			if !strings.HasPrefix(r.Redis, "not reachable: ") || r.Reason != "Redis: "+r.Redis {
				t.Errorf("redis %q, reason %q", r.Redis, r.Reason)
			}
			r = a.awaits("the destination says so too", 20*time.Second, is("failing"))
			if d := r.Destinations[0]; !strings.HasPrefix(d.Reason, "Redis: ") || d.Until != nil {
				t.Errorf("destination %+v", d)
			}
			if _, body := a.get("/readyz"); strings.Contains(body, "127.0.0.1") {
				t.Errorf("it names an address to those without a token: %s", body)
			}
			row.up(server)
			a.awaits("ready again", 20*time.Second, func(r health.Report) bool {
				return cmp.Equal(r, health.Report{Status: health.Ready, Redis: "ok", Destinations: []health.Destination{fetching}})
			})
		})
	}
}

// A Redis that answers and refuses what a worker needs is no Redis to work with.
func TestNotReadyWhileRedisRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		refuse   func(*testing.T, redis.UniversalClient)
		allow    func(*testing.T, redis.UniversalClient)
		want     string
		withJobs bool
	}{
		{
			name:   "no permission",
			refuse: acl("-evalsha", "-eval"), allow: acl("+@all"),
			want: "NOPERM",
		},
		{
			name: "a replica",
			refuse: func(t *testing.T, rdb redis.UniversalClient) {
				// The replica's master never answers, and the replica goes on with the data that it has.
				if err := rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
					t.Fatal(err)
				}
			},
			allow: func(t *testing.T, rdb redis.UniversalClient) {
				if err := rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
			},
			want: "READONLY", withJobs: true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithArgs("--maxmemory-policy", "noeviction"))
			rdb := server.Client(t)
			if err := rdb.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">s3cret-pass", "~*", "&*", "+@all").Err(); err != nil {
				t.Fatal(err)
			}
			api, url := startAPI(t, fakeapi.Options{})
			a := runAsked(t, shopOn(strings.Replace(server.URL(), "redis://", "redis://worker:s3cret-pass@", 1), url)...)
			a.awaits("ready", 20*time.Second, isReady)
			client, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"), jobs.WithLogger(silent))
			if err != nil {
				t.Fatal(err)
			}
			if row.withJobs {
				if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, "shop", breaker.TripOptions{For: 4 * time.Second}); err != nil {
					t.Fatal(err)
				}
				a.awaits("waiting", 10*time.Second, is("waiting"))
				if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err != nil {
					t.Fatal(err)
				}
			}
			row.refuse(t, rdb)
			r := a.awaits("failing", 20*time.Second, is("failing"))
			d := r.Destinations[0]
			if isReady(r) || !strings.HasPrefix(d.Reason, "Redis: ") || !strings.Contains(d.Reason, row.want) || r.Reason != "shop: "+d.Reason {
				t.Errorf("%+v; want a reason with %q", r, row.want)
			}
			if r.Redis != "ok" {
				t.Errorf("redis %q, and it answers", r.Redis)
			}
			if text := d.Reason + r.Reason + r.Redis; strings.Contains(text, "s3cret-pass") {
				t.Errorf("a secret in %q", text)
			}
			row.allow(t, rdb)
			a.awaits("ready again", 20*time.Second, func(r health.Report) bool { return isReady(r) && is("fetching")(r) })
			if !row.withJobs {
				if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err != nil {
					t.Fatal(err)
				}
			}
			if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted == 1 }); err != nil {
				t.Error(err)
			}
		})
	}
}

func acl(rules ...string) func(*testing.T, redis.UniversalClient) {
	return func(t *testing.T, rdb redis.UniversalClient) {
		args := []any{"ACL", "SETUSER", "worker"}
		for _, r := range rules {
			args = append(args, r)
		}
		if err := rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A Redis whose memory is full takes no new jobs, and the worker goes on to work off
// its jobs. Worker and API say so.
func TestReadyWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--maxmemory-policy", "noeviction"))
	rdb := server.Client(t)
	api, url := startAPI(t, fakeapi.Options{})
	a := runAsked(t, shopOn(server.URL(), url)...)
	a.awaits("ready", 20*time.Second, isReady)
	producers := runTheAPI(t, append(shopOn(server.URL(), url), "LISTEN_ADDR=127.0.0.1:0")...)
	producers.await(http.StatusOK, "/readyz", "", `{"status":"ready","redis":"ok","destinations":[]}`)
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, "shop", breaker.TripOptions{}); err != nil {
		t.Fatal(err)
	}
	a.awaits("waiting", 10*time.Second, is("waiting"))
	job, err := client.Enqueue(t.Context(), jobs.New("shop", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	full := a.awaits("out of memory", 10*time.Second, func(r health.Report) bool {
		return isReady(r) && r.Redis == "out of memory (maxmemory); jobs still run, nothing is recorded" && r.RedisWarning != ""
	})
	producers.await(http.StatusOK, "/readyz", "", fmt.Sprintf(`"redis":%q,"redis_warning":%q`, full.Redis, full.RedisWarning))
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("enqueued into a full Redis: %v", err)
	}
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), rdb, "shop", "test"); err != nil {
		t.Fatal(err)
	}
	if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted == 1 }); err != nil {
		t.Fatal(err)
	}
	a.awaits("at work", 10*time.Second, func(r health.Report) bool {
		j, err := client.Get(t.Context(), job.ID)
		return err == nil && j.Status == jobs.Completed && isReady(r) && is("fetching")(r)
	})
}

// The API warns of a Redis that may drop jobs, as the worker does.
func TestAPIWarnsOfEviction(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	environ := shopOn(server.URL(), "http://127.0.0.1:1")
	r := runAsked(t, environ...).awaits("ready", time.Minute, isReady)
	if r.RedisWarning == "" {
		t.Errorf("the worker warns of nothing: %+v", r)
	}
	runTheAPI(t, append(environ, "LISTEN_ADDR=127.0.0.1:0")...).await(http.StatusOK, "/readyz", "", fmt.Sprintf(`"redis":"ok","redis_warning":%q`, r.RedisWarning))
}

// An open breaker and a paused destination do not make the worker unready: it works as intended,
// and reports the causes of its waits.
func TestReadyWhileItWaits(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	api, url := startAPI(t, fakeapi.Options{})
	a := runAsked(t, append(shopOn(server.URL(), url),
		"DESTINATION_1_NAME=blog", "DESTINATION_1_URL="+url, "DESTINATION_1_CONCURRENCY=3",
		"SLACK_WEBHOOK_URL=http://127.0.0.1:9/hook")...) // and so with a destination of Tidegate's own
	blog := health.Destination{Name: "blog", State: "fetching", Concurrency: 3}
	expect := func(what string, want ...health.Destination) health.Report {
		t.Helper()
		report := health.Report{Status: health.Ready, Redis: "ok", Destinations: want}
		return a.awaits(what, 20*time.Second, func(r health.Report) bool {
			return cmp.Equal(report, r, cmpopts.IgnoreFields(health.Destination{}, "Until"))
		})
	}
	expect("both fetch", blog, fetching)

	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, "shop", breaker.TripOptions{For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	open := health.Destination{Name: "shop", State: "waiting", Reason: "its circuit breaker is OPEN", Concurrency: 10}
	r := expect("open", blog, open)
	if until := r.Destinations[1].Until; until == nil || until.Location() != time.UTC ||
		until.Sub(time.Now().Add(time.Hour)).Abs() > time.Minute {
		t.Errorf("open until %v, want in an hour", until)
	}
	client, err := jobs.NewClient(rdb, jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.PauseDestination(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	paused := health.Destination{Name: "shop", State: "paused", Reason: "paused: tidegate queue resume shop", Concurrency: 10}
	if r := expect("paused", blog, paused); r.Destinations[1].Until != nil {
		t.Errorf("paused until %v", r.Destinations[1].Until)
	}
	if _, err := client.ResumeDestination(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	expect("open again", blog, open)
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, "shop", breaker.TripOptions{}); err != nil {
		t.Fatal(err)
	}
	a.awaits("open until reset", 20*time.Second, func(r health.Report) bool { return is("fetching")(r) && r.Destinations[1].Until == nil })

	// One probe: the one that waits says that as well.
	api.Queue(fakeapi.Answer{Status: http.StatusCreated, Delay: 3 * time.Second})
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, "shop", breaker.TripOptions{For: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err != nil {
		t.Fatal(err)
	}
	expect("half open", blog, health.Destination{
		Name: "shop", State: "waiting", Reason: "its circuit breaker is HALF_OPEN: one probe in the whole fleet", InFlight: 1, Concurrency: 10,
	})
	slow := fetching
	slow.Reason = "each call needs a permit: because of its rate, its concurrency, a low budget, or the slow start after an incident"
	expect("closed, and in slow start", blog, slow)
}

// Not being paused, which comes first in the answer, hides no error that comes after it.
func TestNotReadyWhilePartOfRedisFails(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	statuses := []publisher.DestinationStatus{{Destination: "shop"}, {Destination: "blog"}}
	if _, err := readQueues(t.Context(), rdb, store.DefaultNamespace, statuses); err != nil {
		t.Errorf("all well: %v", err)
	}
	if err := rdb.Set(t.Context(), store.FailedKey(store.DefaultNamespace.Queues("blog")[2]), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if q, err := readQueues(t.Context(), rdb, store.DefaultNamespace, statuses); err == nil {
		t.Errorf("one command failed, and it says %+v", q)
	}
}

// A worker that stops is not ready and lives until its calls have ended.
func TestNotReadyWhileItStops(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api, url := startAPI(t, fakeapi.Options{Latency: 2500 * time.Millisecond})
	a := runAsked(t, shopOn(server.URL(), url)...)
	client, err := jobs.NewClient(server.Client(t), jobs.WithDestinations("shop"), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err != nil {
		t.Fatal(err)
	}
	if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	r := a.awaits("not ready", 2*time.Second, func(r health.Report) bool { return !isReady(r) && r.Redis == "not asked" }) // its destinations may stop a moment before
	want := health.Report{
		Status: health.NotReady, Reason: "the worker shuts down", Redis: "not asked",
		Destinations: []health.Destination{{Name: "shop", State: "stopping", Reason: "the worker shuts down", InFlight: 1, Concurrency: 10}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("while it stops (-want +got)\n%s", diff)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got := api.Stats(); got.Accepted != 1 || api.Receipts()[0].Gone {
		t.Errorf("the call was cut: %+v", got)
	}
	if status, _ := a.get("/healthz"); status != 0 {
		t.Errorf("health is served after the end: %d", status)
	}
}

// Where OPS_ADDR is off nothing is served, and the worker works all the same.
func TestWithoutHealth(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api, url := startAPI(t, fakeapi.Options{})
	stop := run(t, load(t, append(shopOn(server.URL(), url), "OPS_ADDR=off")...))
	client, err := jobs.NewClient(server.Client(t), jobs.WithDestinations("shop"), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err != nil {
		t.Fatal(err)
	}
	if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted == 1 }); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// An address that was set and cannot be used ends the worker before it does anything,
// with an error of the configuration.
func TestTakenAddress(t *testing.T) {
	t.Parallel()
	taken, err := health.Start(t.Context(), health.Options{Addr: "127.0.0.1:0", Metrics: http.NotFoundHandler(), Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	cfg := load(t, append(shopOn("redis://127.0.0.1:1", "http://127.0.0.1:1"), "OPS_ADDR="+taken.Addr())...)
	err = RunWorker(t.Context(), cfg, silent, Process{})
	want := "OPS_ADDR: health: listen: listen tcp " + taken.Addr() + ": bind: address already in use; set it to an address of this machine with a free port, or to off"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

// /readyz reports recent failures, and stays ready.
func TestReadyShowsRecentFailures(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api := fakeapi.New(fakeapi.Options{Script: func(int, *http.Request) *fakeapi.Answer { return &fakeapi.Answer{Status: http.StatusForbidden} }})
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", nil)); err != nil {
			t.Fatal(err)
		}
	}
	a := runAsked(t, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+url)
	a.awaits("three failures and ready", 30*time.Second, func(r health.Report) bool {
		return r.Status == health.Ready && len(r.Destinations) == 1 && r.Destinations[0].FailedRecently == 3
	})
}
