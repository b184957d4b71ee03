package cli

import (
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/dashboard"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/explain"
	events "github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/jobs"
)

// page is a page of the dashboard over the bench's Redis.
func (b *bench) page(t *testing.T, path string) string {
	t.Helper()
	rdb := b.server.Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	guard, err := access.NewGuard(access.GuardOptions{Redis: rdb, Logger: log, PageError: func(w http.ResponseWriter, _ *http.Request, status int, _ string) { w.WriteHeader(status) }})
	if err != nil {
		t.Fatal(err)
	}
	board, err := dashboard.New(dashboard.Options{Redis: rdb, Client: client, Guard: guard, Hub: events.New(rdb, client, events.Options{Logger: log}), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(board)
	defer server.Close()
	r, err := server.Client().Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", path, r.StatusCode, err)
	}
	return html.UnescapeString(string(body))
}

// limitKeys lets an API limit keys of shop for an hour each.
func limitKeys(t *testing.T, rdb redis.UniversalClient, keys ...string) {
	t.Helper()
	b, err := breaker.New(t.Context(), rdb, breaker.Options{Destination: "shop", MaxCooldown: 2 * time.Hour, NoLearning: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, key := range keys {
		var permit breaker.Permit
		if permit, err = b.Key(key).Allow(t.Context()); err == nil {
			_, err = permit.Report(t.Context(), breaker.RateLimited(time.Hour).WithScope(breaker.ScopeUser))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What is known of a learned limit is one sentence, wherever one looks.
func TestALearnedLimitIsOneSentence(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	began := time.Now().Truncate(time.Second)
	rdb := b.server.Client(t)
	if err := rdb.HSet(t.Context(), "tidegate:{shop}:breaker", "round_started", began.UnixMicro(), "round_used", 14).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.SetRecord(t, rdb, "tidegate:{shop}:breaker",
		"learned_since", began.UnixMilli(), "learned_gap", 60e6, "learned_length", 3600e6, "learned_quota", 60, "learner",
		`{"pace":{"stage":"holding","fast":59,"slow":60,"length":3600,"seen":2},"whole":{"quota":60,"lo":3500,"hi":3600,"took":10,"sure":2}}`)
	b.run(t, "enqueue", "-d", "shop", "--id", "post", "--payload", "1").ok(t)
	b.serve(t, "shop")
	want := "about 60 calls per 1 h, learned from 2 windows; 14 used, more at " + explain.At(began.Add(time.Hour), time.Now())
	for where, text := range map[string]string{
		"limits": b.run(t, "limits").ok(t), "breaker get": b.run(t, "breaker", "get", "shop").ok(t), "get": b.run(t, "get", "post").ok(t),
		"forecast": b.run(t, "forecast", "shop").ok(t), "the breaker's page": b.page(t, "/breakers/shop"), "the destination's page": b.page(t, "/destinations/shop"),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not say %q:\n%s", where, want, text)
		}
	}
}

// Why a destination is slow has one answer, wherever one looks.
func TestWhySlowHasOneAnswer(t *testing.T) {
	t.Parallel()
	const sec = int64(time.Second / time.Millisecond)
	for name, row := range map[string]struct {
		prepare func(b *bench, rdb redis.UniversalClient)
		want    string
		ofJob   string // what the job's own key says, if that holds it
	}{
		"a learned pace": {prepare: func(b *bench, rdb redis.UniversalClient) {
			redistest.SetRecord(t, rdb, "tidegate:{shop}:breaker", "learned_since", time.Now().Unix()*sec,
				"learner", `{"pace":{"stage":"holding","slow":5,"length":300,"seen":3}}`)
		}, want: "learned limit: about 60 calls per 5 min, learned from 3 windows"},
		"a slow start": {prepare: func(b *bench, rdb redis.UniversalClient) {
			b.run(t, "breaker", "trip", "shop").ok(t)
			b.run(t, "breaker", "reset", "shop").ok(t)
		}, want: "slow start: 1 in flight at most"},
		"limited keys": {prepare: func(b *bench, rdb redis.UniversalClient) {
			var keys []string
			for i := range 50 {
				keys = append(keys, fmt.Sprint("k", i))
			}
			limitKeys(t, rdb, keys...)
			stop := b.work(t)
			redistest.Eventually(t, "the job is held", func() bool { return strings.Contains(b.waits(t, "post"), "shop/k7") })
			stop()
		}, want: "50 keys are rate limited; other keys run", ofJob: "rate limit reached; shop/k7 reopens in "},
		"a pause": {prepare: func(b *bench, rdb redis.UniversalClient) {
			b.run(t, "queue", "pause", "shop", "--reason", "they move").ok(t)
		}, want: "paused by "},
		"an open breaker": {prepare: func(b *bench, rdb redis.UniversalClient) {
			limitKeys(t, rdb, "")
		}, want: "rate limit reached; shop reopens in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, shop...)
			rdb := b.server.Client(t)
			b.run(t, "enqueue", "-d", "shop", "--id", "post", "--key", "k7", "--payload", "1").ok(t)
			row.prepare(b, rdb)
			b.serve(t, "shop")
			ofJob := row.want
			if row.ofJob != "" {
				ofJob = row.ofJob
			}
			for where, text := range map[string]string{
				"get": b.run(t, "get", "post").ok(t), "list": b.run(t, "list").ok(t), "stats": b.run(t, "stats").ok(t), "doctor": b.run(t, "doctor").ok(t),
				"forecast": b.run(t, "forecast", "shop").ok(t), "the destination's page": b.page(t, "/destinations/shop"),
			} {
				want := row.want
				if where == "get" || where == "list" {
					want = ofJob
				}
				if !strings.Contains(text, want) {
					t.Errorf("%s does not say %q:\n%s", where, want, text)
				}
			}
		})
	}
}
