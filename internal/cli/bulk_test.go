package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

const (
	unknownField = "is not a field of a job to enqueue; there are id, destination, key, payload, request, priority, order, retry, max_reschedules, cost, costs, available_at, delay, replace, replace_max, batch, labels, after, on_success, on_failure, ttl, if_late, expires_at"
)

// mixed is a file with all kinds of lines, and what becomes of each that is bad.
func mixed() (file string, rejected []rejection) {
	var b strings.Builder
	line := 0
	add := func(text, problem string) {
		line++
		b.WriteString(text + "\n")
		if problem != "" {
			rejected = append(rejected, rejection{Line: line, Error: problem})
		}
	}
	add("\ufeff"+`{"id":"a","destination":"shop","payload":{"n": 1}}`, "")
	add(`nonsense`, `is not valid JSON: invalid character 'o' in literal null (expecting 'u')`)
	add("", "")
	add("  \t\r", "")
	add(`{"id":"b","payload":null}`+"\r", "")
	add(`{"destination":"blog","payload":1}`, `destination "blog" is not known; known are shop, stock`)
	add(`{"destination":"shop"}`, `payload: is missing; give JSON, for instance {} or null`)
	add(`{"payload":1,"ttl":"soon"}`, `ttl: "soon" is not a duration; write one such as 30s, 5m, 24h or 7d`)
	add(`{"payload":1,"\u001b[2J":1}`, `[2J: `+unknownField)
	add(`{"payload":"`+strings.Repeat("x", 100)+`"}`, `payload: has 102 bytes, at most 100 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference`)
	add(`{"payload":"`+strings.Repeat("x", 400<<10)+`"}`, `is longer than 65636 bytes, which no line with a payload of at most 100 bytes is (MAX_PAYLOAD_BYTES)`)
	add(`{"id":"c","destination":"stock","key":"alice","payload":3,"priority":"high","order":"key","max_reschedules":7,"cost":5,"available_at":"2099-01-31T14:35:00Z",`+
		`"request":{"path":"/x","query":"a=b","headers":{"X-A":"b"}},"retry":{"max_retries":2,"retry_on":["timeout"]}}`, "")
	add(`{"id":"e","destination":"shop","payload":1,"batch":"tuesday","after":["c","a"],"ttl":"7d"}`, "")
	add(`{"id":"f","destination":"shop","payload":1,"after":["nope"]}`, `after: job "nope" not found; enqueue parents first`)
	add(`{"id":"g","destination":"shop","payload":1,"batch":"","ttl":60,"status":"failed","attempt":3,"available_at":"2001-01-31T14:35:00Z","response":{"status":500},"waiting":null}`, "")
	b.WriteString(`{"id":"d","payload":4}`) // no end of line
	return b.String(), rejected
}

func newFileBench(t *testing.T) *bench {
	t.Helper()
	return newBench(t, append([]string{"MAX_PAYLOAD_BYTES=100", "DESTINATION_1_NAME=stock", "DESTINATION_1_URL=https://stock.example.com"}, shop...)...)
}

func TestFile(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	text, rejected := mixed()
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := b.run(t, "enqueue", "--file", file, "-d", "shop", "--batch", "monday", "-o", "json")
	if want := fmt.Sprintf("{\"error\":\"%d lines were rejected; correct and enqueue those again\"}\n", len(rejected)); got.status != 2 || got.stderr != want {
		t.Errorf("exit status %d, stderr %q, want 2 and %q", got.status, got.stderr, want)
	}
	want := bulkResult{Accepted: 6, Rejected: rejected}
	if diff := cmp.Diff(want, decode[bulkResult](t, got.stdout)); diff != "" {
		t.Errorf("result (-want +got)\n%s", diff)
	}
	for id, payload := range map[string]string{"a": `{"n":1}`, "b": "null", "c": "3", "d": "4"} {
		if j := decode[document](t, b.run(t, "get", id, "-o", "json").ok(t)); string(j.Payload) != payload {
			t.Errorf("%s has payload %s, want %s", id, j.Payload, payload)
		}
	}
	seven := 7
	c := decode[document](t, b.run(t, "get", "c", "-o", "json").ok(t)).Job
	c2 := jobs.Job{
		ID: "c", Destination: "stock", Key: "alice", Status: jobs.Pending, Priority: jobs.PriorityHigh, Order: jobs.OrderKey, Payload: []byte("3"), Batch: "monday", After: []string{},
		Request: jobs.Request{Path: "/x", Query: "a=b", Headers: map[string]string{"X-A": "b"}}, MaxReschedules: &seven, Cost: 5,
		Retry:       &jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 300 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout}},
		AvailableAt: c.AvailableAt, CreatedAt: c.CreatedAt, Output: []byte("null"),
	}
	if diff := cmp.Diff(c2, c); diff != "" || c.AvailableAt.Year() != 2099 {
		t.Errorf("job c (-want +got)\n%s", diff)
	}
	e, g := b.job(t, "e"), b.job(t, "g")
	if e.Batch != "tuesday" || e.Status != jobs.Waiting || !slices.Equal(e.After, []string{"c", "a"}) || e.ExpiresAt == nil || e.ExpiresAt.Sub(e.CreatedAt).Round(time.Hour) != 7*24*time.Hour {
		t.Errorf("job e %+v", e)
	}
	if g.Batch != "monday" || g.Status != jobs.Pending || g.Attempt != 0 || g.Response != nil || g.AvailableAt.Before(g.CreatedAt) || g.ExpiresAt == nil ||
		g.ExpiresAt.Sub(g.CreatedAt).Round(time.Second) != time.Minute {
		t.Errorf("job g %+v", g)
	}
	// All with an id are there already; the exit status is about the bad lines.
	again := decode[bulkResult](t, b.run(t, "enqueue", "--file", file, "-d", "shop", "-o", "json").stdout)
	if again.Accepted != 0 || again.Duplicates != 6 {
		t.Errorf("the second time %d accepted and %d duplicates, want 0 and 6", again.Accepted, again.Duplicates)
	}
}

func TestFileText(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	got := runIn(t, b.env, "{\"id\":\"a\",\"destination\":\"shop\",\"payload\":1}\n{\"id\":\"a\",\"destination\":\"shop\",\"payload\":1}\n", "enqueue", "--file", "-")
	if want := regexp.MustCompile(`^accepted 1 job, 1 whose id existed already, rejected 0 lines, in [0-9.]+m?s\n$`); got.status != 0 || !want.MatchString(got.stdout) || got.stderr != "" {
		t.Errorf("exit status %d, stdout %q, stderr %q, want %s", got.status, got.stdout, got.stderr, want)
	}
	got = runIn(t, b.env, strings.Repeat("x\n", 30), "enqueue", "--file", "-")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.status != 2 || len(lines) != 22 || !strings.HasPrefix(lines[0], "accepted 0 jobs, rejected 30 lines, in ") ||
		lines[20] != "line 20: is not valid JSON: invalid character 'x' looking for beginning of value" || lines[21] != "… and 10 more; -o json shows all" {
		t.Errorf("exit status %d, stdout:\n%s", got.status, got.stdout)
	}
	runIn(t, b.env, "", "enqueue", "--file", "-", "-o", "json").want(t, 0, "{\"accepted\":0,\"duplicates\":0,\"rejected\":[]}\n", "")
}

// Jobs are enqueued in the order of the file, over several chunks.
func TestFileKeepsOrder(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	const n = 2*mostLines + 100
	var file strings.Builder
	var want []string
	for i := range n {
		id := fmt.Sprintf("job-%05d", i)
		want = append(want, id)
		fmt.Fprintf(&file, "{\"id\":%q,\"destination\":\"shop\",\"payload\":%d}\n", id, i)
	}
	doc := decode[bulkResult](t, runIn(t, b.env, file.String(), "enqueue", "--file", "-", "-o", "json").ok(t))
	if doc.Accepted != n {
		t.Errorf("%d accepted, want %d", doc.Accepted, n)
	}
	ids, err := b.server.Client(t).LRange(t.Context(), "asynq:{tidegate:shop}:pending", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids) // the rightmost is served first
	if !slices.Equal(ids, want) {
		t.Error("the queue has another order than the file")
	}
}

// feed runs enqueue --file - on a pipe.
type feed struct {
	*io.PipeWriter
	stop context.CancelFunc
	done chan outcome
}

func (b *bench) feed(t *testing.T) *feed {
	t.Helper()
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	f := &feed{PipeWriter: w, stop: stop, done: make(chan outcome, 1)}
	go func() {
		var stdout, stderr bytes.Buffer
		status := Run(ctx, Process{Args: []string{"enqueue", "--file", "-", "-o", "json"}, Environ: b.env, Stdin: r, Stdout: &stdout, Stderr: &stderr})
		f.done <- outcome{status, stdout.String(), stderr.String()}
	}()
	t.Cleanup(func() {
		stop()
		w.Close()
	})
	return f
}

func (f *feed) line(t *testing.T, n int) {
	t.Helper()
	if _, err := fmt.Fprintf(f, "{\"destination\":\"shop\",\"payload\":%d}\n", n); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) awaitPending(t *testing.T, n int64) {
	t.Helper()
	rdb := b.server.Client(t)
	redistest.Eventually(t, fmt.Sprintf("%d jobs pending", n), func() bool {
		got, err := rdb.LLen(t.Context(), "asynq:{tidegate:shop}:pending").Result()
		return err == nil && got == n
	})
}

// What a slow producer has written is enqueued before it writes more.
func TestFileStreams(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	f := b.feed(t)
	for i := range 3 {
		f.line(t, i)
		b.awaitPending(t, int64(i+1))
	}
	f.Close()
	(<-f.done).want(t, 0, "{\"accepted\":3,\"duplicates\":0,\"rejected\":[]}\n", "")
}

func TestFileInterrupted(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	f := b.feed(t)
	f.line(t, 1)
	f.line(t, 2)
	b.awaitPending(t, 2)
	f.stop()
	(<-f.done).want(t, 1, "{\"accepted\":2,\"duplicates\":0,\"rejected\":[]}\n",
		"{\"error\":\"stopped (interrupted); accepted so far: 2 jobs; go on with: tail -n +3 FILE | tidegate enqueue --file -\"}\n")
}

func TestFileRedisDies(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	f := b.feed(t)
	f.line(t, 1)
	f.line(t, 2)
	b.awaitPending(t, 2)
	b.server.Kill()
	f.line(t, 3)
	got := <-f.done
	// Redis may have died with the second job and before its answer.
	accepted, counted := 2, "2 jobs"
	if strings.Contains(got.stdout, `"accepted":1,`) {
		accepted, counted = 1, "1 job"
	}
	want := regexp.MustCompile(fmt.Sprintf(`^\{"error":"stopped \(.*\); accepted so far: %s; go on with: tail -n \+%[2]d FILE \| tidegate enqueue --file -; `+
		`line %[2]d may be enqueued already: it can be repeated safely if it has an id; check that Redis is up and that REDIS_URL is right, then try again"\}\n$`, counted, accepted+1))
	if got.status != 1 || got.stdout != fmt.Sprintf("{\"accepted\":%d,\"duplicates\":0,\"rejected\":[]}\n", accepted) || !want.MatchString(got.stderr) {
		t.Errorf("exit status %d, stdout %q, stderr:\n%s\nwant 1 and %s", got.status, got.stdout, got.stderr, want)
	}
}

// A file that breaks off while it is read.
func TestFileUnreadable(t *testing.T) {
	t.Parallel()
	b := newFileBench(t)
	f := b.feed(t)
	f.line(t, 1)
	b.awaitPending(t, 1)
	f.CloseWithError(os.ErrDeadlineExceeded)
	(<-f.done).want(t, 1, "{\"accepted\":1,\"duplicates\":0,\"rejected\":[]}\n",
		"{\"error\":\"stopped (read line 2: i/o timeout); accepted so far: 1 job; go on with: tail -n +2 FILE | tidegate enqueue --file -\"}\n")
}
