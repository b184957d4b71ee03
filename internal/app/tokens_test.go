package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// replace puts a new file in the place of the old one.
func replace(t *testing.T, path, content string) {
	t.Helper()
	next := path + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, path)); err != nil {
		t.Fatal(err)
	}
}

// Each key's jobs are sent with its token, also after the file has changed; a key
// without one fails until there is one.
func TestTokensPerKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api, url := startAPI(t, fakeapi.Options{})
	path := filepath.Join(t.TempDir(), "tokens.json")
	replace(t, path, `{"alice":"alice-1","bob":"bob-1"}`)
	cfg := load(t, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+url,
		"DESTINATION_0_AUTH_TOKEN=nobody", "DESTINATION_0_AUTH_TOKENS_FILE="+path)
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(id, key string) {
		t.Helper()
		options := []jobs.Option{jobs.ID(id)}
		if key != "" {
			options = append(options, jobs.Key(key))
		}
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", 7, options...)); err != nil {
			t.Fatal(err)
		}
	}
	until := func(id string, status jobs.Status) *jobs.Job {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			job, err := client.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if job.Status == status {
				return job
			}
			select {
			case <-deadline:
				t.Fatalf("%s is %s: %s; want %s", id, job.Status, job.LastError, status)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	stop := run(t, cfg)
	enqueue("1", "alice")
	enqueue("2", "bob")
	enqueue("3", "")
	enqueue("4", "carol")
	for _, id := range []string{"1", "2", "3"} {
		until(id, jobs.Completed)
	}
	const want = `no token for key "carol" in AUTH_TOKENS_FILE of destination shop: add it (the file is read again by itself), then: tidegate retry 4`
	if job := until("4", jobs.Failed); job.LastError != want || job.Attempt != 0 || job.Response != nil {
		t.Errorf("carol's job failed with %q after %d retries, want %q", job.LastError, job.Attempt, want)
	}

	replace(t, path, `{"alice":"alice-2","carol":"carol-1"}`)
	if err := client.Retry(t.Context(), "4"); err != nil {
		t.Fatal(err)
	}
	until("4", jobs.Completed)
	// Now the file has been read.
	enqueue("5", "alice")
	enqueue("6", "bob")
	until("5", jobs.Completed)
	until("6", jobs.Failed)
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}

	got := map[string]string{}
	for _, r := range api.Receipts() {
		got[r.Key] = r.Auth
	}
	sent := map[string]string{}
	for id, token := range map[string]string{"1": "alice-1", "2": "bob-1", "3": "nobody", "4": "carol-1", "5": "alice-2"} {
		sent[id] = fakeapi.HashAuth("Bearer " + token)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("tokens of the calls (-want +got):\n%s", diff)
	}
}

// A file that was in order when the configuration was read, and is not any more.
func TestTokensFileGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	replace(t, path, `{"alice":"hunter2"}`)
	cfg := load(t, "REDIS_URL="+server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com", "DESTINATION_0_AUTH_TOKENS_FILE="+path)
	replace(t, path, `{"alice":"hunter2`)
	err := RunWorker(t.Context(), cfg, silent, Process{Version: "v1"})
	if _, wrong := errors.AsType[config.Errors](err); !wrong || !strings.HasPrefix(err.Error(), "DESTINATION_0_AUTH_TOKENS_FILE: ") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want config.Errors about the file", err)
	}
}

// The values of the configuration arrive at the breaker and the HTTP destination.
func TestLimitsOfADestination(t *testing.T) {
	t.Parallel()
	cfg := load(t, "DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://api.example.com", "DESTINATION_0_RATE=60/1h", "DESTINATION_0_BURST=5",
		"DESTINATION_0_HINTS=x-ratelimit,retry-after", "CIRCUIT_BREAKER_COOLDOWN_JITTER=0.25", "CIRCUIT_BREAKER_TRUST_HINTS=false",
		"DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://api.example.com", "DESTINATION_1_HINTS=none", "DESTINATION_1_CIRCUIT_BREAKER_COOLDOWN_JITTER=0")
	want := breaker.Options{
		FailureThreshold: 3, OutageThreshold: 10, Cooldown: 5 * time.Minute, CooldownMultiplier: 1, CooldownJitter: 0.25, MaxCooldown: time.Hour,
		IgnoreHints: true, ProbeTimeout: 35 * time.Second, Rate: breaker.Rates{{Calls: 60, Per: time.Hour, Burst: 5}},
	}
	got := BreakerOptions(cfg.Destinations[0])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if got := BreakerOptions(cfg.Destinations[1]); got.CooldownJitter >= 0 || got.Rate != nil {
		t.Errorf("second: jitter %v, rate %+v; want none", got.CooldownJitter, got.Rate)
	}
	var names []string
	for _, d := range dialects(cfg.Destinations[0].Hints) {
		names = append(names, d.Name)
	}
	if diff := cmp.Diff([]string{hint.XRateLimit.Name, hint.RetryAfter.Name}, names); diff != "" {
		t.Errorf("dialects (-want +got):\n%s", diff)
	}
	if none := dialects(cfg.Destinations[1].Hints); none == nil || len(none) != 0 {
		t.Errorf("dialects %v, want none, and not the default", none)
	}
}
