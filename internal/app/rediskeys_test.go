package app

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeoauth"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// listedKey is a line of docs/redis-keys.md.
type listedKey struct {
	name    string
	is      *regexp.Regexp
	typ     string
	expires bool
	rare    bool // exists only after a failure, or for a moment
	seen    int
	expired bool // one of those that were seen expires
}

var (
	keyLine     = regexp.MustCompile("(?m)^- (`[^:]+:.*?`): (string|hash|list|set|zset|stream); [^;]+; (.+?): ")
	placeholder = regexp.MustCompile(`<[a-z]+>`)
)

func readListedKeys(t *testing.T) []listedKey {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis-keys.md")
	if err != nil {
		t.Fatal(err)
	}
	all, rare, found := strings.Cut(string(text), "\n## After failures, and for a moment\n")
	if !found {
		t.Fatal("docs/redis-keys.md has no part about keys that are rare")
	}
	var out []listedKey
	for i, part := range []string{all, rare} {
		for _, m := range keyLine.FindAllStringSubmatch(part, -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				name = strings.Trim(name, "`")
				pattern := placeholder.ReplaceAllString(regexp.QuoteMeta(name), `.*`)
				pattern = strings.ReplaceAll(pattern, `\{q\}`, `\{tidegate:[a-z-]*(:high|:low)?\}`)
				pattern = strings.ReplaceAll(pattern, `\{d\}`, `\{[a-z/-]+\}`)
				out = append(out, listedKey{name, regexp.MustCompile("^" + pattern + "$"), m[2], !strings.HasPrefix(m[3], "kept"), i == 1, 0, false})
			}
		}
	}
	return out
}

// keysSeen are the keys that a Redis has held: their types, and whether they expire.
type keysSeen struct {
	mu      sync.Mutex
	typ     map[string]string
	expires map[string]bool
}

// watchKeys looks at all keys again and again.
func watchKeys(t *testing.T, rdb redis.UniversalClient) *keysSeen {
	seen := &keysSeen{typ: map[string]string{}, expires: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			found, err := rdb.Keys(ctx, "*").Result()
			for _, key := range found {
				typ, left := rdb.Type(ctx, key).Val(), rdb.PTTL(ctx, key).Val()
				if err == nil && typ != "none" && left != -2 {
					seen.mu.Lock()
					seen.typ[key], seen.expires[key] = typ, seen.expires[key] || left > 0
					seen.mu.Unlock()
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	return seen
}

// Each key that an installation makes is in docs/redis-keys.md with its type and whether it
// expires, and the other way round.
func TestKeysInRedisAreListed(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	listed := readListedKeys(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	seen := watchKeys(t, rdb)
	i := install(t, server, "tidegate")
	oauth := fakeoauth.New(fakeoauth.Options{})
	tokens, err := oauth.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = oauth.Close() })
	api, url := startAPI(t, fakeapi.Options{})
	_, _, receivers := people(t)
	limits := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(limits, []byte("limits: {all: {rate: 900/1s, concurrency: 9}, some: {rate: 900/1s, concurrency: 9, key: payload}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := load(t, append(receivers, "REDIS_URL="+server.URL(),
		"CREDENTIALS_KEY=cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU=",
		"DESTINATION_0_NAME=art", "DESTINATION_0_URL="+url, "DESTINATION_0_OAUTH_TOKEN_URL="+tokens+"/token",
		"DESTINATION_0_OAUTH_CLIENT_ID="+fakeoauth.ClientID, "DESTINATION_0_OAUTH_CLIENT_SECRET="+fakeoauth.ClientSecret,
		"DESTINATION_0_RATE=1000/s", "DESTINATION_0_KEY_RATE=500/s", "DESTINATION_0_FLEET_CONCURRENCY=5", "DESTINATION_0_KEY_CONCURRENCY=2",
		"DESTINATIONS_FILE="+limits, "DESTINATION_0_LIMITS=[all, some]", "CIRCUIT_BREAKER_COOLDOWN_MS=200")...)
	stop := run(t, cfg)
	ctx := t.Context()
	client, err := NewClient(rdb, cfg, nil, silent)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "two workers", func() bool { workers, err := i.client.Workers(ctx); return err == nil && len(workers) == 2 })
	enqueue := func(id string, options ...jobs.Option) {
		t.Helper()
		if _, err := client.Enqueue(ctx, jobs.New("art", 7, append(options, jobs.ID(id))...)); err != nil {
			t.Fatal(err)
		}
	}
	await := func(id string, status jobs.Status) {
		t.Helper()
		redistest.Eventually(t, id+" is "+string(status), func() bool { j, err := client.Get(ctx, id); return err == nil && j.Status == status })
	}
	i.enqueue("called-back")
	i.completed("called-back")
	api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		switch {
		case strings.HasSuffix(r.URL.Path, "/bad"):
			return &fakeapi.Answer{Status: http.StatusUnprocessableEntity}
		case strings.HasSuffix(r.URL.Path, "/limited"):
			return &fakeapi.Answer{Status: http.StatusTooManyRequests}
		}
		return nil
	})
	enqueue("good", jobs.Batch("monday"), jobs.Key("bob"))
	await("good", jobs.Completed)
	enqueue("bad", jobs.Path("/bad"))
	await("bad", jobs.Failed)
	enqueue("later", jobs.Delay(time.Hour), jobs.TTL(2*time.Hour))
	enqueue("child", jobs.After("later"))
	enqueue("expires", jobs.TTL(0))
	enqueue("cancelled", jobs.Delay(time.Hour), jobs.Replace("profile"))
	enqueue("paused", jobs.Delay(time.Hour))
	enqueue("retried", jobs.Path("/limited"), jobs.Key("alice"), jobs.Order(jobs.OrderKey), jobs.MaxReschedules(100))
	if err := errors.Join(client.Cancel(ctx, "cancelled"), client.Pause(ctx, "paused")); err != nil {
		t.Fatal(err)
	}
	if _, err := breaker.DefaultNamespace.Trip(ctx, rdb, "art/carol", breaker.TripOptions{Reason: "trial"}); err != nil {
		t.Fatal(err)
	}
	enqueue("held", jobs.Key("carol"))
	redistest.Eventually(t, "a refusal", func() bool { return api.Stats().Limited > 2 })
	if _, err := breaker.DefaultNamespace.Trip(ctx, rdb, "art", breaker.TripOptions{Reason: "trial"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PauseDestination(ctx, "art"); err != nil {
		t.Fatal(err)
	}
	operators := ops.New(ops.Options{Redis: rdb, Client: client})
	if _, err := operators.SetLimit(ctx, "art", "900/s", 0, nil, ops.Why{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	missing := func() []string {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		var out []string
		for _, l := range listed {
			if !l.rare && !slices.ContainsFunc(slices.Collect(maps.Keys(seen.typ)), l.is.MatchString) {
				out = append(out, l.name)
			}
		}
		return out
	}
	// What a busy machine has not made by then is not wrong for that.
	for end := time.Now().Add(15 * time.Second); len(missing()) > 0 && time.Now().Before(end); {
		<-time.After(50 * time.Millisecond)
	}
	if left := missing(); len(left) > 3 {
		t.Errorf("listed, and not seen: %v", left)
	} else if len(left) > 0 {
		t.Logf("listed, and not seen: %v", left)
	}
	if err := errors.Join(stop(), i.stop()); err != nil {
		t.Error(err)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(seen.typ)) {
		at := slices.IndexFunc(listed, func(l listedKey) bool { return l.is.MatchString(key) })
		if at < 0 {
			t.Errorf("%s: a %s that expires (%t) is not in docs/redis-keys.md", key, seen.typ[key], seen.expires[key])
			continue
		}
		l := &listed[at]
		if l.seen, l.expired = l.seen+1, l.expired || seen.expires[key]; l.typ != seen.typ[key] {
			t.Errorf("%s is a %s, listed as a %s", key, seen.typ[key], l.typ)
		}
	}
	for _, l := range listed {
		if l.seen > 0 && !l.rare && l.expired != l.expires {
			t.Errorf("%s expires: %t, listed: %t", l.name, l.expired, l.expires)
		}
	}
}
