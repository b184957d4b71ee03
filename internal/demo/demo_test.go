package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	status := m.Run()
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after all tests:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// small is a show of two seconds with one incident.
func small() Options {
	return Options{
		Jobs: 30, Workers: 2, Concurrency: 2, Quota: 15, Window: 3 * time.Second, Latency: 10 * time.Millisecond,
		Threshold: 2, Cooldown: 600 * time.Millisecond,
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := Defaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	want := "jobs must be from 1 to 10000, is 0; workers must be from 1 to 20, is 0; concurrency must be from 1 to 100, is 0; " +
		"quota must be from 1 to 1000000, is 0; threshold must be from 1 to 1000, is 0; window must be from 100ms to 10m0s, is 0s; " +
		"cooldown must be from 100ms to 10m0s, is 0s; latency must be from 0s to 1m0s, is 2m0s"
	if err := (Options{Latency: 2 * time.Minute}).Validate(); err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
	if err := Run(t.Context(), Options{}, &bytes.Buffer{}); err == nil {
		t.Error("Run accepts options that are not valid")
	}
}

// The default show ends in about half a minute: what it waits for adds up to that.
func TestDefaultsLastHalfAMinute(t *testing.T) {
	t.Parallel()
	o := Defaults()
	windows := (o.Jobs + o.Quota - 1) / o.Quota
	// A window that is used up costs the cooldowns that reach its end.
	cooldowns := (windows - 1) * int((o.Window+o.Cooldown-1)/o.Cooldown)
	seconds := cooldowns*int(o.Cooldown/time.Second) + windows*2 // two for the calls of each
	if windows != 3 || seconds < 20 || seconds > 32 {
		t.Errorf("%d windows, about %d seconds", windows, seconds)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	var out bytes.Buffer
	started := time.Now()
	o := small()
	o.Jobs, o.Quota, o.Window = 10, 5, 6*time.Second // a busy machine makes 6 calls in that time, too
	if err := Run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	took := time.Since(started)
	// Retries of timing are allowed for (a slow machine may see a second incident).
	want := regexp.MustCompile(`(?s)^Tidegate demo: 10 jobs for an API that accepts 5 calls in 6s and then says 429, no
more\. 2 workers share one circuit breaker: 2 answers of 429 in a row open it for all
of them for 600ms, then one call tests whether the API accepts again\. Slack is notified\.

[0-9:]{8}  10 jobs enqueued; 2 workers start, 2 calls at a time each
.*[0-9:]{8}  the API answered 429 to worker [12]
.*[0-9:]{8}  2 in a row: breaker OPEN for all 2 workers, no calls for 600ms
.*[0-9:]{8}  cooldown over: worker [12] sends one call for all, the probe
.*[0-9:]{8}  the API accepted the probe
.*[0-9:]{8}  breaker CLOSED, recovered after [0-9.]+m?s: [0-9]+ waiting jobs leave
.*[0-9:]{8}  all 10 jobs are published
.*
Summary
  published        10 of 10 jobs, each accepted by the API exactly once \(checked\)
  took             [0-9.]+s
  calls            [0-9]+
  wasted calls     [0-9]+ answered 429
  rescheduled      [0-9]+ times, [0-9]+ jobs in flight; the others stayed in the queue
  time to recover  [0-9.]+m?s \(failed probes: [0-9]+\).*
  without breaker  30 wasted calls \(simulated; refused jobs retried after 1s\)
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("after %v:\n%s\nwant\n%s", took, out.String(), want)
	}
	for _, line := range []string{
		"  Slack #alerts: pictures", // on a busy machine it is tested or has recovered by then
		"  Slack #alerts: pictures has recovered after ",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, out.String())
		}
	}
}

// A limit that is never reached leads to no incident.
func TestRunWithinTheLimit(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	o := small()
	o.Quota = 1000
	var out bytes.Buffer
	if err := Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"all 30 jobs are published\n", "time to recover  the limit was never reached; try a smaller --quota\n", "without breaker  0 wasted calls"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, out.String())
		}
	}
}

// Ctrl-C ends the show with what there is to say, and nothing is left behind.
func TestRunStopped(t *testing.T) {
	t.Parallel()
	o := small()
	o.Window, o.Cooldown = time.Minute, time.Minute
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	screen := writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("breaker OPEN")) {
			stop()
		}
		return out.Write(b)
	})
	if err := Run(ctx, o, screen); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?s)  stopping\n.*\nSummary so far \(stopped early\)\n  published        15 of 30 jobs\n.*  time to recover  not yet\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("%s\nwant %s", out.String(), want)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestRunCannotWrite(t *testing.T) {
	t.Parallel()
	broken := writerFunc(func([]byte) (int, error) { return 0, os.ErrClosed })
	if err := Run(t.Context(), small(), broken); err == nil {
		t.Error("no error although nothing can be written")
	}
}

// The check finds jobs that were accepted twice, or never.
func TestVerify(t *testing.T) {
	t.Parallel()
	o := small()
	o.Quota = 1000
	st, err := newStage(t.Context(), o, newTimeline(o, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	url, err := st.api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	st.closers = append(st.closers, st.api.Close)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for _, key := range []string{"twice", "twice", "unknown"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	text, err, broken := st.summary([]string{"twice", "never"}, time.Second, false)
	want := "demo: the check at the end failed: 1 jobs never reached the API, 1 were accepted more than once, " +
		"1 calls had an unknown idempotency key, 0 of 2 jobs are completed in Redis"
	if err == nil || err.Error() != want || broken != nil {
		t.Errorf("error %v, %v\n want %s", err, broken, want)
	}
	if !strings.Contains(text, "3 of 30 jobs; THE CHECK FAILED\n") {
		t.Errorf("summary\n%s", text)
	}
}

func TestNaive(t *testing.T) {
	t.Parallel()
	base := Options{Jobs: 1, Workers: 1, Concurrency: 1, Quota: 1, Window: 10 * time.Second, Latency: 100 * time.Millisecond}
	for _, row := range []struct {
		name   string
		change func(*Options)
		want   int
	}{
		{"within the quota", func(o *Options) { o.Jobs, o.Quota = 5, 5 }, 0},
		// The second job is tried at 0.1 s, then every 1.1 s: 0.1, 1.2, … 9.0, 10.1.
		{"one job too many", func(o *Options) { o.Jobs = 2 }, 9},
		// Both windows are used up in turn, each with one waiting job.
		{"two windows", func(o *Options) { o.Jobs = 3 }, 9 + 9 + 9},
		{"short window", func(o *Options) { o.Jobs, o.Window = 2, 100*time.Millisecond }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := base
			row.change(&o)
			if got := naive(o); got != row.want {
				t.Errorf("%d wasted calls, want %d", got, row.want)
			}
		})
	}
	if got := naive(Defaults()); got < 300 {
		t.Errorf("the default show: %d wasted calls without a breaker", got)
	}
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	history := []breaker.Event{
		{From: breaker.Closed, To: breaker.Open, At: at(0), OpenedAt: at(0)},
		{From: breaker.Open, To: breaker.HalfOpen, At: at(5), OpenedAt: at(0)},
		{From: breaker.HalfOpen, To: breaker.Open, At: at(6), OpenedAt: at(0)},
		{From: breaker.Open, To: breaker.HalfOpen, At: at(11), OpenedAt: at(0)},
		{From: breaker.HalfOpen, To: breaker.Closed, At: at(12), OpenedAt: at(0), Probes: 1},
		{From: breaker.Closed, To: breaker.Open, At: at(20), OpenedAt: at(20)},
	}
	if text := recovery(history); text != "12s (failed probes: 1), then not yet" {
		t.Errorf("recovery %q", text)
	}
}
