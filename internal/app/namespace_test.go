package app

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/jobs"
)

// installation is a worker, an API with the dashboard, and the services that the worker calls.
type installation struct {
	t        *testing.T
	ns       store.Namespace
	rdb      redis.UniversalClient
	client   *jobs.Client
	breakers breaker.Namespace
	api      *fakeapi.API
	slack    *fakeslack.Slack
	stop     func() error

	mu     sync.Mutex
	called map[string]bool // callbacks, by job
	events map[string]bool // type and destination
}

func install(t *testing.T, server *redistest.Server, namespace string) *installation {
	t.Helper()
	i := &installation{
		t: t, ns: store.Namespace(namespace), rdb: server.Client(t), breakers: breaker.Namespace(namespace),
		called: map[string]bool{}, events: map[string]bool{},
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct{ Data struct{ ID string } }
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Errorf("callback: %v", err)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.called[event.Data.ID] = true
	}))
	t.Cleanup(receiver.Close)
	api, apiURL := startAPI(t, fakeapi.Options{})
	slack, _, receivers := people(t)
	i.api, i.slack = api, slack
	cfg := load(t, append(receivers, "REDIS_URL="+server.URL(), "REDIS_NAMESPACE="+namespace,
		"DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+apiURL, "DESTINATION_0_RATE=1000/s",
		"DESTINATION_0_CALLBACK_URL="+receiver.URL, "DESTINATION_0_CALLBACK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")...)
	var err error
	if i.client, err = NewClient(i.rdb, cfg, nil, silent); err != nil {
		t.Fatal(err)
	}
	i.stop = run(t, cfg)
	redistest.Eventually(t, namespace+" has a worker and a reader of its events", func() bool {
		workers, err := i.client.Workers(t.Context())
		return err == nil && len(workers) == 1 && i.rdb.Exists(t.Context(), store.EventsRelayedKey(i.ns.Queue("shop", store.Default))).Val() == 1
	})
	i.signIn()
	i.subscribe()
	return i
}

// signIn signs in to the dashboard, and looks at its pages.
func (i *installation) signIn() {
	i.t.Helper()
	token, entry, err := access.NewToken("ops", []access.Scope{access.ScopeOperate}, time.Now())
	if err != nil {
		i.t.Fatal(err)
	}
	content, err := access.FormatFile([]access.Entry{entry})
	path := filepath.Join(i.t.TempDir(), "tokens.json")
	if err := errors.Join(err, os.WriteFile(path, content, 0o600)); err != nil {
		i.t.Fatal(err)
	}
	known, err := access.OpenTokens(path, access.Options{Logger: silent})
	if err != nil {
		i.t.Fatal(err)
	}
	served, err := APIHandler(i.t.Context(), APIOptions{Redis: i.rdb, Client: i.client, Tokens: known, Logger: silent})
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(served.Close)
	server := httptest.NewServer(served)
	i.t.Cleanup(server.Close)
	browser := server.Client()
	browser.Jar, _ = cookiejar.New(nil)
	answer, err := browser.PostForm(server.URL+"/login", url.Values{"token": {token}, "next": {"/destinations/shop"}})
	if err != nil {
		i.t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Request.URL.Path != "/destinations/shop" {
		i.t.Errorf("signed in: %s of %s", answer.Status, answer.Request.URL)
	}
	if n := len(keys(i.t, i.rdb, string(i.ns)+":session:*")); n != 1 {
		i.t.Errorf("%d sessions in %s", n, i.ns)
	}
}

// subscribe notes all events.
func (i *installation) subscribe() {
	i.t.Helper()
	hub := feed.New(i.rdb, i.client, feed.Options{Every: 20 * time.Millisecond, Logger: silent})
	var running sync.WaitGroup
	ctx := i.t.Context()
	running.Go(func() { hub.Run(ctx) })
	s, err := hub.Subscribe(ctx, feed.SubscribeOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	running.Go(func() {
		for e := range s.C {
			i.mu.Lock()
			i.events[e.Type+" "+e.Destination] = true
			i.mu.Unlock()
		}
	})
	i.t.Cleanup(running.Wait)
}

func (i *installation) enqueue(id string, options ...jobs.Option) {
	i.t.Helper()
	if _, err := i.client.Enqueue(i.t.Context(), jobs.New("shop", 7, append(options, jobs.ID(id))...)); err != nil {
		i.t.Fatalf("%s: enqueue: %v", i.ns, err)
	}
}

// completed waits until exactly these jobs are completed, called back and accepted.
func (i *installation) completed(ids ...string) {
	i.t.Helper()
	var found, called []string
	redistest.Eventually(i.t, string(i.ns)+" completes "+strings.Join(ids, ", "), func() bool {
		page, err := i.client.List(i.t.Context(), jobs.ListOptions{Filter: jobs.Filter{Statuses: []jobs.Status{jobs.Completed}}})
		if err != nil {
			return false
		}
		found = nil
		for _, j := range page.Items {
			found = append(found, j.ID)
		}
		slices.Sort(found)
		i.mu.Lock()
		defer i.mu.Unlock()
		called = slices.Sorted(maps.Keys(i.called))
		return len(found) >= len(ids) && len(called) >= len(ids)
	})
	for what, got := range map[string][]string{"completed": found, "called back": called, "accepted": slices.Sorted(maps.Keys(i.api.Accepted()))} {
		if diff := cmp.Diff(ids, got); diff != "" {
			i.t.Errorf("%s, %s (-want +got):\n%s", i.ns, what, diff)
		}
	}
}

// want compares a value that an installation reads with the wanted one.
func want[T any](i *installation, what string, got, want T, err error) {
	i.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		i.t.Errorf("%s: %s: %v (-want +got):\n%s", i.ns, what, err, diff)
	}
}

func keys(t *testing.T, rdb redis.UniversalClient, pattern string) []string {
	t.Helper()
	found, err := rdb.Keys(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Two installations with the same destination in one database answer for themselves alone,
// also where the name of the one begins that of the other; and no key or channel is outside
// of their namespaces but asynq's own.
func TestInstallationsShareADatabase(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for _, pair := range [][2]string{{"tidegate", "tidegate-2"}, {"a", "a-b"}} {
		t.Run(strings.Join(pair[:], " and "), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			channels := eavesdrop(t, server)
			one, two := install(t, server, pair[0]), install(t, server, pair[1])
			ctx := t.Context()

			// A pause, and jobs with the same id in a batch of the same name.
			if changed, err := one.client.PauseDestination(ctx, "shop"); err != nil || !changed {
				t.Fatalf("pause: %t, %v", changed, err)
			}
			one.enqueue("post", jobs.Batch("monday"))
			two.enqueue("post", jobs.Batch("monday"))
			two.enqueue("other", jobs.Batch("monday"), jobs.After("post"))
			two.completed("other", "post")
			for i, total := range map[*installation]int{one: 1, two: 2} {
				batch, err := i.client.Batch(ctx, "monday")
				want(i, "jobs of the batch", batch.Total, total, err)
				stats, err := i.client.Stats(ctx, "shop")
				want(i, "paused", stats[0].Paused, i == one, err)
				want(i, "backlog", stats[0].Backlog, 2-total, err)
			}
			if _, err := one.client.ResumeDestination(ctx, "shop"); err != nil {
				t.Fatal(err)
			}
			one.completed("post")

			// A breaker, its incident, and the alert.
			if _, err := one.breakers.Trip(ctx, one.rdb, "shop", breaker.TripOptions{Reason: "trial"}); err != nil {
				t.Fatal(err)
			}
			one.enqueue("held")
			two.enqueue("third")
			two.completed("other", "post", "third")
			if err := one.slack.Await(soon(t), func(all []fakeslack.Message) bool { return len(all) > 0 }); err != nil {
				t.Errorf("no alert: %v", err)
			}
			redistest.Eventually(t, "the event of the breaker", func() bool {
				one.mu.Lock()
				defer one.mu.Unlock()
				return one.events["breaker shop"]
			})
			for i, incidents := range map[*installation]int{one: 1, two: 0} {
				state := breaker.Closed
				if i == one {
					state = breaker.Open
				}
				read, err := i.breakers.ReadOne(ctx, i.rdb, breaker.Query{History: breaker.All, Incidents: breaker.All}, "shop")
				want(i, "breaker", read.Status.State, state, err)
				want(i, "transitions", len(read.History), incidents, nil)
				want(i, "incidents", len(read.Incidents), incidents, nil)
				want(i, "alerts", len(i.slack.Messages()), incidents, nil)
				i.mu.Lock()
				want(i, "an event of a breaker", i.events["breaker shop"], i == one, nil)
				want(i, "an event of a pause", i.events["destination shop"], i == one, nil)
				want(i, "an event of a job", i.events["job.completed shop"], true, nil)
				i.mu.Unlock()
			}
			if _, err := two.client.Get(ctx, "held"); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("a job of another installation: %v", err)
			}
			if err := one.client.Cancel(ctx, "held"); err != nil {
				t.Error(err)
			}

			// A destination without a worker, and what the doctor sees.
			stray, err := jobs.NewClient(one.rdb, jobs.WithNamespace(pair[0]), jobs.WithDestinations("stray"), jobs.WithLogger(silent))
			if err == nil {
				_, err = stray.Enqueue(ctx, jobs.New("stray", 7))
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, strays := range map[*installation]int{one: 1, two: 0} {
				unserved, err := i.client.Unserved(ctx)
				want(i, "unserved destinations", len(unserved), strays, err)
				report, err := doctor.Run(ctx, i.rdb, doctor.Options{Namespace: i.ns})
				if err != nil {
					t.Fatal(err)
				}
				want(i, "findings", len(report.Findings), strays, nil)
				// Callbacks are jobs, and alerts.
				if report.Checked < 3 {
					t.Errorf("%s: the doctor looked at %d jobs", i.ns, report.Checked)
				}
				workers, err := i.client.Workers(ctx)
				want(i, "workers", len(workers), 1, err)
				queue, err := asynq.NewInspectorFromRedisClient(i.rdb).GetQueueInfo(i.ns.Queue("shop", store.Default))
				if err != nil {
					t.Fatal(err)
				}
				want(i, "completed jobs by asynq's own inspector", queue.Completed, 3-2*strays, nil)
			}
			for _, i := range []*installation{one, two} {
				if err := i.stop(); err != nil {
					t.Errorf("%s: %v", i.ns, err)
				}
			}

			names := append(keys(t, one.rdb, "*"), channels()...)
			for _, name := range names {
				tagged, _, _ := strings.Cut(strings.TrimPrefix(name, "asynq:{"), ":")
				switch ns := store.Namespace(tagged); {
				case ns == one.ns, ns == two.ns:
				case name == store.QueuesKey, strings.HasPrefix(name, "asynq:servers"), strings.HasPrefix(name, "asynq:workers"), name == "asynq:cancel":
				default:
					t.Errorf("%s is in no namespace", name)
				}
			}
			if len(names) < 40 {
				t.Errorf("only %d keys and channels were seen: %v", len(names), names)
			}
		})
	}
}

// eavesdrop returns a function that returns the channels that messages came through so far.
func eavesdrop(t *testing.T, server *redistest.Server) func() []string {
	t.Helper()
	all := server.Client(t).PSubscribe(t.Context(), "*")
	if _, err := all.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	messages := all.Channel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range messages {
			mu.Lock()
			seen[m.Channel] = true
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = all.Close(); <-done })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Collect(maps.Keys(seen))
	}
}
