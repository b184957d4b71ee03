package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The demo reaches the limit, goes on by itself, and ends with a summary. Nothing of the environment matters.
func TestDemo(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	// A busy machine may make it warn on stderr.
	o := runIn(t, []string{"REDIS_URL=nonsense", "CIRCUIT_BREAKER_TRESHOLD=1"}, "", "demo", "--jobs", "8", "--fake", "4/6s")
	out, rest := o.stdout, o.stdout
	if o.status != 0 {
		t.Fatalf("exit status %d, stderr:\n%s", o.status, o.stderr)
	}
	for _, part := range []string{
		"Tidegate demo: 8 jobs for a fake API that accepts 4/6s", "The dashboard is at http://127.0.0.1:", "  demo: the API said how long to wait; no calls until ",
		"  demo: calls go on after ", "  published 8 of 8\n\nSummary\n", "8 of 8 jobs, each accepted by the API exactly once\n", "incident 1   ", "rescheduled  ",
	} {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("no %q, or out of order, in\n%s", part, out)
		}
		rest = after
	}
}

// Ctrl-C ends the demo with what there is to say.
func TestDemoStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, status := &loggingtest.Buffer{}, make(chan int, 1)
	go func() {
		status <- Run(ctx, Process{Args: []string{"demo", "--fake", "5/1m"}, Stdin: strings.NewReader(""), Stdout: out, Stderr: out})
	}()
	redistest.Eventually(t, "the breaker opens", func() bool { return strings.Contains(out.String(), "no calls until") || len(status) > 0 })
	stop()
	if got := <-status; got != 0 || !strings.Contains(out.String(), " of 150 jobs, stopped early\n") || !strings.Contains(out.String(), "still open\n") {
		t.Errorf("exit status %d\n%s", got, out.String())
	}
}

// The demo fails if a job is not published, or the API has not seen it.
func TestDemoChecksItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DESTINATION_0_NAME=demo", "DESTINATION_0_URL=http://127.0.0.1:9")
	cfg, _, err := config.Load(b.env)
	if err != nil {
		t.Fatal(err)
	}
	out := &loggingtest.Buffer{}
	p := &Process{Stdout: out, Stderr: out}
	s, err := p.connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	job, err := s.client.Enqueue(t.Context(), jobs.New("demo", 1, jobs.Batch("demo")))
	if err == nil {
		err = s.client.Cancel(t.Context(), job.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = (&demoCmd{Jobs: 1}).summarize(t.Context(), p, &dev{fake: fakeapi.New(fakeapi.Options{})}, s, time.Second)
	if want := "demo: 0 of 1 jobs are published, and the API accepted 0 of them in 0 calls"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s\n%s", err, want, out.String())
	}
}
