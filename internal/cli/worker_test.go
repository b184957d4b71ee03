package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The whole way: enqueue, worker, API, and what get shows then.
func TestWorker(t *testing.T) {
	t.Parallel()
	api := fakeapi.New(fakeapi.Options{})
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	b := newBench(t, "DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+url+"/items", "DESTINATION_0_AUTH_TOKEN=hunter2", "LOG_FORMAT=json", "LOG_LEVEL=debug", "REDIS_PORT=6379")
	b.run(t, "enqueue", "-d", "shop", "--id", "post-7", "--payload", `{"a":1}`, "--path", "/7")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stdout, stderr bytes.Buffer
	status := make(chan int)
	go func() {
		status <- Run(ctx, Process{Args: []string{"worker"}, Environ: b.env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	}()
	if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted == 1 }); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the job is completed", func() bool {
		return strings.Contains(b.run(t, "get", "post-7").stdout, "status       completed\n")
	})
	stop()
	if got := <-status; got != 0 || stdout.Len() > 0 {
		t.Errorf("exit status %d, stdout %q, want 0 and nothing", got, stdout.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line %q is not JSON", line)
		}
	}
	if strings.Contains(stderr.String(), "hunter2") {
		t.Errorf("the log shows the token:\n%s", stderr.String())
	}
	r := api.Receipts()[0]
	if r.Path != "/items/7" || r.Key != "post-7" || string(r.Body) != `{"a":1}` || r.Auth != fakeapi.HashAuth("Bearer hunter2") {
		t.Errorf("the API got %+v", r)
	}
	doc := decode[document](t, b.run(t, "get", "post-7", "-o", "json").stdout)
	if doc.Status != jobs.Completed || doc.Response == nil || doc.Response.Status != 201 || doc.Waiting != nil {
		t.Errorf("job %+v, waiting %+v", doc.Job, doc.Waiting)
	}
	if out := b.run(t, "list", "--status", "completed").stdout; !strings.Contains(out, "answered 201") {
		t.Errorf("list:\n%s", out)
	}
	if s := decode[breaker.Status](t, b.run(t, "breaker", "get", "shop", "-o", "json").stdout); s.State != breaker.Closed {
		t.Errorf("breaker %+v", s)
	}
}

func TestWorkerNeedsADestination(t *testing.T) {
	t.Parallel()
	runIn(t, nil, "", "worker").want(t, 78, "", "tidegate: DESTINATION_0_NAME: is not set, and no destination is configured; set DESTINATION_0_NAME and DESTINATION_0_URL, or DESTINATIONS_FILE\n")
}
