package clienttest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// server is a running "tidegate api".
type server struct {
	url   string
	token string // of scopes enqueue and operate
	shop  string // of scope enqueue
}

// start builds the program and runs its API, with tokens made by the program.
func start(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "tidegate")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/tidegate")
	build.Dir = filepath.Join("..", "..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tokens := filepath.Join(dir, "tokens.json")
	newToken := func(name, scopes string) string {
		out, err := exec.CommandContext(t.Context(), program, "token", "new", "--name", name, "--scope", scopes, "--file", tokens, "-o", "json").Output()
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal(out, &doc); err != nil || doc.Token == "" {
			t.Fatalf("%v in %s", err, out)
		}
		return doc.Token
	}
	s := &server{token: newToken("ann", "enqueue,operate"), shop: newToken("shop", "enqueue")}

	ctx, cancel := context.WithCancel(context.Background())
	run := exec.CommandContext(ctx, program, "api")
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	run.WaitDelay = 20 * time.Second
	run.Env = append(os.Environ(), "REDIS_URL="+redistest.Start(t).URL(), "LISTEN_ADDR=127.0.0.1:0", "API_TOKENS_FILE="+tokens, "LOG_FORMAT=json",
		"DESTINATION_0_NAME=deviantart", "DESTINATION_0_URL=http://127.0.0.1:9/")
	logs, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	urls := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := bufio.NewScanner(logs); in.Scan(); {
			var line struct{ Msg, URL string }
			if json.Unmarshal(in.Bytes(), &line) == nil && line.Msg == "api started" {
				urls <- line.URL
			}
		}
		_, _ = io.Copy(io.Discard, logs)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = run.Wait() // the status after SIGTERM is another test's
	})
	select {
	case s.url = <-urls:
	case <-time.After(time.Minute):
		t.Fatal("the server did not start")
	}
	return s
}

// client makes a client that sends a token.
func (s *server) client(t *testing.T, token string) *ClientWithResponses {
	t.Helper()
	c, err := NewClientWithResponses(s.url, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ptr[T any](v T) *T { return &v }

// A client that was generated from the document enqueues, lists and cancels.
func TestGeneratedClient(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	c := s.client(t, s.token)

	// One job.
	var one JobsToEnqueue
	if err := one.FromNewJob(NewJob{Destination: "deviantart", Payload: map[string]any{"title": "Sunset"}, Id: ptr("post-7"), Key: ptr("alice"), Retry: &Retry{MaxRetries: 2}}); err != nil {
		t.Fatal(err)
	}
	enqueued, err := c.EnqueueJobsWithResponse(ctx, one)
	if err != nil || enqueued.JSON201 == nil {
		t.Fatalf("%v, %s %s", err, enqueued.Status(), enqueued.Body)
	}
	job, err := enqueued.JSON201.AsJob()
	if err != nil || job.Id != "post-7" || job.Status != JobStatusPending || job.Retry == nil || job.Retry.MaxRetries != 2 {
		t.Errorf("%v, %+v", err, job)
	}
	if again, err := c.EnqueueJobsWithResponse(ctx, one); err != nil || again.JSON200 == nil {
		t.Errorf("the same again: %v, %s", err, again.Status())
	} else if job, err := again.JSON200.AsJob(); err != nil || !job.Duplicate {
		t.Errorf("the same again: %v, %+v", err, job)
	}

	// An array.
	var array []NewJob
	for i := range 5 {
		array = append(array, NewJob{Destination: "deviantart", Payload: i, Id: ptr(fmt.Sprint("job-", i)), Batch: ptr("monday")})
	}
	array = append(array, NewJob{Destination: "nowhere", Payload: nil})
	var several JobsToEnqueue
	if err := several.FromJobsToEnqueue1(array); err != nil {
		t.Fatal(err)
	}
	enqueued, err = c.EnqueueJobsWithResponse(ctx, several)
	if err != nil || enqueued.JSON201 == nil {
		t.Fatalf("%v, %s %s", err, enqueued.Status(), enqueued.Body)
	}
	answer, err := enqueued.JSON201.AsEnqueued()
	if err != nil || answer.Accepted != 5 || answer.Rejected != 1 || len(answer.Items) != 6 || answer.Items[5].Errors == nil {
		t.Errorf("%v, %+v", err, answer)
	}

	// Lines.
	lines := strings.Repeat(`{"destination":"deviantart","payload":1,"batch":"tuesday"}`+"\n", 3000)
	enqueued, err = c.EnqueueJobsWithBodyWithResponse(ctx, "application/x-ndjson", strings.NewReader(lines))
	if err != nil || enqueued.JSON201 == nil {
		t.Fatalf("%v, %s %s", err, enqueued.Status(), enqueued.Body)
	}
	if answer, err := enqueued.JSON201.AsEnqueued(); err != nil || answer.Accepted != 3000 {
		t.Errorf("%v, %+v", err, answer)
	}

	// List, page by page.
	var ids []string
	for params := (&ListJobsParams{Batch: ptr("monday"), Status: &[]string{"pending", "failed"}, Limit: ptr(int64(2))}); ; {
		page, err := c.ListJobsWithResponse(ctx, params)
		if err != nil || page.JSON200 == nil {
			t.Fatalf("%v, %s %s", err, page.Status(), page.Body)
		}
		for _, j := range page.JSON200.Items {
			ids = append(ids, j.Id)
		}
		if params.Cursor = &page.JSON200.Next; page.JSON200.Next == "" {
			break
		}
	}
	slices.Sort(ids)
	if want := []string{"job-0", "job-1", "job-2", "job-3", "job-4"}; !slices.Equal(ids, want) {
		t.Errorf("listed %v, want %v", ids, want)
	}

	// Look at one, and cancel it.
	got, err := c.GetJobWithResponse(ctx, "post-7", nil)
	if err != nil || got.JSON200 == nil || got.JSON200.Waiting == nil || got.JSON200.Waiting.Ahead == nil {
		t.Fatalf("%v, %s %s", err, got.Status(), got.Body)
	}
	cancelled, err := c.CancelJobWithResponse(ctx, "post-7", Reason{Reason: ptr("wrong file")})
	if err != nil || cancelled.JSON200 == nil || !cancelled.JSON200.Done {
		t.Fatalf("%v, %s %s", err, cancelled.Status(), cancelled.Body)
	}
	if again, err := c.CancelJobWithResponse(ctx, "post-7", Reason{}); err != nil || again.ApplicationproblemJSON409 == nil || again.ApplicationproblemJSON409.Status != http.StatusConflict {
		t.Errorf("cancelled again: %v, %s %s", err, again.Status(), again.Body)
	}

	// Count what a filter selects, then cancel it.
	dry, err := c.CancelJobsWithResponse(ctx, Selection{Batch: ptr("tuesday"), DryRun: ptr(true)})
	if err != nil || dry.JSON200 == nil || dry.JSON200.Matched == nil || *dry.JSON200.Matched != 3000 {
		t.Fatalf("%v, %s %s", err, dry.Status(), dry.Body)
	}
	all, err := c.CancelJobsWithResponse(ctx, Selection{Batch: ptr("tuesday")})
	if err != nil || all.JSON200 == nil || all.JSON200.Done != 3000 {
		t.Fatalf("%v, %s %s", err, all.Status(), all.Body)
	}

	// A breaker, whose name has a slash.
	tripped, err := c.TripBreakerWithResponse(ctx, "deviantart/alice", nil, Trip{For: ptr("10m")})
	if err != nil || tripped.JSON200 == nil || tripped.JSON200.State != BreakerStateOPEN || tripped.JSON200.TrippedBy != "token:ann" {
		t.Fatalf("%v, %s %s", err, tripped.Status(), tripped.Body)
	}

	// What another token may not do.
	if seen, err := s.client(t, s.shop).GetJobWithResponse(ctx, "post-7", nil); err != nil || seen.ApplicationproblemJSON403 == nil {
		t.Errorf("with the scope enqueue: %v, %s %s", err, seen.Status(), seen.Body)
	}
	if seen, err := s.client(t, "tg_nonsense").GetJobWithResponse(ctx, "post-7", nil); err != nil || seen.ApplicationproblemJSON401 == nil {
		t.Errorf("with a wrong token: %v, %s %s", err, seen.Status(), seen.Body)
	}
}
