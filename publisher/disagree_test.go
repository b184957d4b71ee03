package publisher_test

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

var offset = regexp.MustCompile(`is 1m[23]\ds ahead`)

// Workers that are configured differently, or whose clock is wrong, are named with what
// they have differently: by clients, and once in the log of the one that comes last.
func TestWorkersThatDisagreeAreNamed(t *testing.T) {
	t.Parallel()
	b := fixtureOn(t, redistest.Database(t))
	ctx := t.Context()
	run := func(name string, ahead time.Duration, opts ...publisher.HandleOption) *loggingtest.Buffer {
		t.Helper()
		log := &loggingtest.Buffer{}
		p, err := publisher.New(b.rdb, publisher.Options{Worker: name, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		p.SetClock(func() time.Time { return time.Now().Add(ahead) })
		if err := p.Handle(b.dest, publisher.Func(func(context.Context, *jobs.Job) error { return nil }), opts...); err != nil {
			t.Fatal(err)
		}
		running, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() {
			if err := p.Run(running); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { cancel(); done.Wait() })
		redistest.Eventually(t, name+" is known", func() bool { return b.rdb.HExists(ctx, store.DefaultNamespace.WorkersKey(), name).Val() })
		return log
	}
	problems := func() []string {
		t.Helper()
		found, err := b.client.Disagreements(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := []string{}
		for _, d := range found {
			out = append(out, d.Problem)
		}
		return out
	}
	const secret = "https://api.example.com/hook/5ecret-path"
	rules := breaker.Options{Rate: breaker.Rates{{Calls: 2, Per: time.Second}}, FailureThreshold: 3}
	same := []publisher.HandleOption{publisher.Breaker(rules), publisher.Setting("URL", secret)}
	run("w1", 0, same...)
	spelled := breaker.Options{
		Rate: breaker.Rates{{Calls: 2, Per: time.Second, Burst: 1}}, FailureThreshold: 3,
		Cooldown: breaker.DefaultCooldown, CooldownMultiplier: breaker.DefaultCooldownMultiplier,
		CooldownJitter: breaker.DefaultCooldownJitter, MaxCooldown: breaker.DefaultMaxCooldown, ProbeTimeout: 35 * time.Second,
	}
	second := run("w2", time.Second, publisher.Breaker(spelled), publisher.Setting("URL", secret), publisher.Concurrency(3))
	if got := problems(); len(got) != 0 {
		t.Fatalf("workers that agree, but for their concurrency and the defaults that they spell out: %q", got)
	}
	other := rules
	other.Rate, other.FailureThreshold = breaker.Rates{{Calls: 20, Per: time.Second}}, 5
	third := run("w3", 90*time.Second, publisher.Breaker(other), publisher.Setting("URL", secret+"2"), publisher.Timeout(time.Second),
		publisher.Order(jobs.OrderKey, publisher.OnFailBlock))
	want := []string{
		"the clock of worker w3 is 1m30s ahead of Redis's; set it by NTP",
		"workers disagree on the URL of " + b.dest + ": w1, w2 / w3",
		"workers disagree on the failure threshold of " + b.dest + ": w1, w2 / w3",
		"workers disagree on the order of " + b.dest + ": w1, w2 / w3",
		"workers disagree on the rate of " + b.dest + ": w1, w2 / w3",
		"workers disagree on the timeout of " + b.dest + ": w1, w2 / w3",
	}
	got := problems()
	for i := range got { // the offset is known to half of a round trip to Redis
		got[i] = offset.ReplaceAllString(got[i], "is 1m30s ahead")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	const warning = "the settings of this worker differ"
	redistest.Eventually(t, "w3 warns", func() bool { return len(third.Lines(warning)) > 0 })
	if got := third.Lines(warning); len(got) != 1 || !strings.Contains(got[0], "the rate of "+b.dest) {
		t.Errorf("w3 logged %q, want one line that names the rate", got)
	}
	if got := second.Lines(warning); len(got) != 0 {
		t.Errorf("w2, which agreed with all at its start, logged %q", got)
	}
	if said := b.rdb.HGet(ctx, store.DefaultNamespace.WorkersKey(), "w3").Val(); strings.Contains(said, "5ecret") {
		t.Errorf("the registration holds a setting: %s", said)
	}
}
