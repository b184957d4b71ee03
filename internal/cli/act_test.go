package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
)

// enqueue enqueues a job for the shop under each id.
func (b *bench) enqueue(t *testing.T, flags string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		b.run(t, append([]string{"enqueue", "-d", "shop", "--id", id}, strings.Fields(flags)...)...).ok(t)
	}
}

// job reads a job.
func (b *bench) job(t *testing.T, id string) jobs.Job {
	t.Helper()
	return decode[document](t, b.run(t, "get", id, "-o", "json").ok(t)).Job
}

// wantStatuses checks statuses, given as "id status" pairs.
func (b *bench) wantStatuses(t *testing.T, pairs ...string) {
	t.Helper()
	for _, pair := range pairs {
		id, want, _ := strings.Cut(pair, " ")
		if got := b.job(t, id).Status; string(got) != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

// operator is how history names whoever runs the tests.
func operator() string { return (&Process{}).why("").By }

func TestActOnIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a", "b", "c", "d")

	b.run(t, "pause", "a", "b", "--reason", "tea").want(t, 0, "paused 2 jobs\n", "")
	b.wantStatuses(t, "a paused", "b paused", "c pending")
	b.run(t, "resume", "a").want(t, 0, "resumed 1 job\n", "")
	b.wantStatuses(t, "a pending", "b paused")
	b.run(t, "cancel", "b", "c", "b", "--reason", "wrong\x1b[2J file").want(t, 0, "cancelled 2 jobs\n", "")
	if j := b.job(t, "c"); j.Status != jobs.Cancelled || j.LastError != "wrong\x1b[2J file" || j.EndedAt == nil {
		t.Errorf("job %+v, want it cancelled with the reason as last error", j)
	}
	b.run(t, "retry", "b", "c").want(t, 0, "retried 2 jobs\n", "")
	b.wantStatuses(t, "b pending", "c pending")

	b.run(t, "cancel", "a", "-o", "json").want(t, 0,
		`{"done":1,"asked":0,"refused":0,"items":[{"id":"a","done":true,"asked":false,"status":"pending","error":""}]}`+"\n", "")
	b.run(t, "expire", "c").want(t, 0, "expired 1 job\n", "")
	b.wantStatuses(t, "c expired")
	b.run(t, "retry", "c").want(t, 1, "", "tidegate: job c cannot be retried: it is expired and expired jobs cannot be run again; enqueue a new one\n")
	if out := b.run(t, "time").ok(t); !strings.HasSuffix(out, "Z\n") {
		t.Errorf("time %q", out)
	} else if now, err := time.Parse(time.RFC3339, strings.TrimSpace(out)); err != nil || time.Since(now).Abs() > time.Minute {
		t.Errorf("time %q: %v", out, err)
	}
	last := b.history(t, "c")
	if by := last[1].By; by != operator() {
		t.Errorf("paused by %q, want %q", by, operator())
	}
}

// What cannot be done is said of each job, and stops no other.
func TestActRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a", "b", "c")
	b.enqueue(t, "--ttl 0", "gone")

	const unknown = "no job has the id \"nope\"; it never existed, or its retention has ended"
	b.run(t, "cancel", "nope").want(t, 4, "", "tidegate: "+unknown+"\n")
	b.run(t, "cancel", "nope", "-o", "json").want(t, 4, "",
		`{"error":"no job has the id \"nope\"; it never existed, or its retention has ended"}`+"\n")
	b.run(t, "pause", "a b\x1b[2J").want(t, 4, "", "tidegate: no job has the id \"a b[2J\"; it never existed, or its retention has ended\n")
	b.run(t, "resume", "a").want(t, 1, "", "tidegate: job a cannot be resumed: it is pending\n")
	b.run(t, "retry", "gone").want(t, 1, "", "tidegate: job gone cannot be retried: it is expired and expired jobs cannot be run again; enqueue a new one\n")
	b.run(t, "cancel", "gone").want(t, 1, "", "tidegate: job gone cannot be cancelled: it is expired\n")
	b.run(t, "pause", "a", "nope", "gone", "b").want(t, 1, "paused 2 jobs; refused 2\n",
		"tidegate: "+unknown+"\ntidegate: job gone cannot be paused: it is expired\n")
	b.wantStatuses(t, "a paused", "b paused", "gone expired")
	b.run(t, "pause", "c", "a", "-o", "json").want(t, 1,
		`{"done":1,"asked":0,"refused":1,"items":[{"id":"c","done":true,"asked":false,"status":"pending","error":""},{"id":"a","done":false,"asked":false,"status":"paused","error":"job a cannot be paused: it is paused"}]}`+"\n",
		`{"error":"job a cannot be paused: it is paused"}`+"\n")

	var many []string
	for i := range 25 {
		many = append(many, fmt.Sprintf("nope-%02d", i))
	}
	got := b.run(t, append([]string{"cancel", "c"}, many...)...)
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	if got.status != 1 || got.stdout != "cancelled 1 job; refused 25\n" || len(lines) != 21 || lines[20] != "tidegate: … and 5 more; -o json shows all" {
		t.Errorf("exit status %d, stdout %q, stderr:\n%s", got.status, got.stdout, got.stderr)
	}
}

func TestActOnFilter(t *testing.T) {
	t.Parallel()
	b := newBench(t, append([]string{"DESTINATION_1_NAME=blog", "DESTINATION_1_URL=https://blog.example.com"}, shop...)...)
	b.enqueue(t, "--key alice", "a1", "a2")
	b.enqueue(t, "--key bob --batch monday", "b1", "b2")
	b.enqueue(t, "--batch monday --delay 2h", "later")
	b.run(t, "enqueue", "-d", "blog", "--id", "post").ok(t)

	for args, want := range map[string]int{
		"pause --destination shop": 5, "pause --destination blog": 1, "pause --key alice": 2, "cancel --batch monday": 3, "cancel --batch tuesday": 0,
		"cancel --status pending": 6, "cancel --status paused,retry_pending": 0, "cancel -d shop -s pending --key bob --batch monday": 2, "retry --batch monday": 0,
	} {
		b.run(t, append(strings.Fields(args), "--dry-run", "-o", "json")...).want(t, 0, fmt.Sprintf("{\"matched\":%d}\n", want), "")
	}
	b.run(t, "pause", "--key", "alice", "--dry-run").want(t, 0, "would pause 2 jobs\n", "")
	b.run(t, "pause", "--key", "alice", "--reason", "tea").want(t, 0, "paused 2 jobs\n", "")
	b.wantStatuses(t, "a1 paused", "a2 paused", "b1 pending")
	b.run(t, "pause", "-d", "shop", "-o", "json").want(t, 0, `{"done":3,"asked":0,"refused":0}`+"\n", "")
	b.run(t, "resume", "--status", "paused", "--batch", "monday").want(t, 0, "resumed 3 jobs\n", "")
	b.wantStatuses(t, "a1 paused", "b1 pending", "b2 pending", "later pending", "post pending")
	if j := b.job(t, "later"); time.Until(j.AvailableAt) < time.Hour {
		t.Errorf("resumed for %v, want the time that it had", j.AvailableAt)
	}
	b.run(t, "cancel", "--batch", "monday").want(t, 0, "cancelled 3 jobs\n", "")
	b.run(t, "cancel", "--batch", "monday").want(t, 0, "cancelled 0 jobs\n", "")
	b.run(t, "retry", "--status", "cancelled", "--key", "bob").want(t, 0, "retried 2 jobs\n", "")
	b.wantStatuses(t, "a1 paused", "b1 pending", "b2 pending", "later cancelled", "post pending")
	if e := b.history(t, "a1"); len(e) != 2 || e[1].Detail != "tea" || e[1].By != operator() {
		t.Errorf("history %+v, want a pause for tea", e)
	}
}

// serveAPI starts an API that answers by the path of a call: /slow after a while, /bad with 400, anything else at
// once. It returns the environment of its destination.
func serveAPI(t *testing.T) []string {
	t.Helper()
	api := fakeapi.New(fakeapi.Options{Script: func(_ int, r *http.Request) *fakeapi.Answer {
		switch r.URL.Path {
		case "/slow":
			return &fakeapi.Answer{Status: 200, Delay: time.Minute}
		case "/soon":
			return &fakeapi.Answer{Status: 200, Delay: 700 * time.Millisecond}
		case "/bad":
			return &fakeapi.Answer{Status: 400}
		}
		return nil
	}})
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return []string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=" + url, "LOG_FORMAT=json"}
}

// work runs a worker until the test ends, or stop is called.
func (b *bench) work(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	status := make(chan int, 1)
	// Of the worker alone: commands warn of calls that may take longer than this.
	env := append(slices.Clone(b.env), "SHUTDOWN_TIMEOUT=100ms")
	go func() {
		status <- Run(ctx, Process{Args: []string{"worker"}, Environ: env, Stdin: strings.NewReader(""), Stdout: &stderr, Stderr: &stderr})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if got := <-status; got != 0 {
			t.Errorf("worker: exit status %d:\n%s", got, stderr.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// What was interrupted before it began has done nothing.
func TestActInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	status := Run(ctx, Process{Args: []string{"cancel", "a"}, Environ: b.env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	if diff := cmp.Diff("tidegate: interrupted\n", stderr.String()); status != 1 || stdout.Len() > 0 || diff != "" {
		t.Errorf("exit status %d, stdout %q, stderr (-want +got)\n%s", status, stdout.String(), diff)
	}
	b.wantStatuses(t, "a pending")
}

// Jobs are named by time and error; a wrong time is refused.
func TestActByTimeAndError(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "enqueue", "-d", "shop", "--id", "a", "--payload", "{}", "--label", "team=web")
	for args, want := range map[string]string{
		"cancel --label team=web --dry-run":                 "would cancel 1 job\n",
		"cancel --label team=web --label run=7 --dry-run":   "would cancel 0 jobs\n",
		"cancel --since 1h --dry-run":                       "would cancel 1 job\n",
		"cancel --since 1h --until 30m --dry-run":           "would cancel 0 jobs\n",
		"cancel --until 2026-01-31T14:35:00Z --dry-run":     "would cancel 0 jobs\n",
		"cancel -d shop --error boom --dry-run":             "would cancel 0 jobs\n",
		"list --since 1h --cause rate_limited --error none": "no jobs\n",
	} {
		if got := b.run(t, strings.Fields(args)...).stdout; got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	for _, args := range []string{"list --since yesterday", "cancel --until= --dry-run", "cancel --error= --dry-run", "cancel --label= --dry-run", "cancel --label team= --dry-run", "list --label team", "list --cause Rate"} {
		if out := b.run(t, strings.Fields(args)...); out.status != 2 {
			t.Errorf("%s: %+v", args, out)
		}
	}
}

func TestQueuePauseAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, append([]string{"DESTINATION_1_NAME=blog", "DESTINATION_1_URL=https://api.example.com/blog"}, shop...)...)
	b.run(t, "queue", "pause", "blog")
	b.run(t, "queue", "pause", "--all").want(t, 0, "DESTINATION  QUEUE\nblog         was paused already\nshop         is paused\n", "")
	b.run(t, "queue", "resume", "--all").want(t, 0, "DESTINATION  QUEUE\nblog         is resumed\nshop         is resumed\n", "")
	for _, args := range [][]string{{"queue", "pause"}, {"queue", "resume", "shop", "--all"}} {
		if out := b.run(t, args...); out.status != 2 || !strings.Contains(out.stderr, "name a destination, or give --all") {
			t.Errorf("%q: %+v", args, out)
		}
	}
}

func TestRetryWithSet(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a", "b", "c")
	b.run(t, "cancel", "a", "b", "c").ok(t)
	b.run(t, "retry", "a", "--set", "payload.title=Sunset, 7 = x", "--set", `payload.n={"m":[1]}`, "--set", "request.path=/x").want(t, 0, "retried 1 job\n", "")
	if got := b.job(t, "a"); string(got.Payload) != `{"title":"Sunset, 7 = x","n":{"m":[1]}}` || got.Request.Path != "/x" {
		t.Errorf("the job is %s, %+v", got.Payload, got.Request)
	}
	if got := b.run(t, "retry", "b", "--set", "payload.x.y=1"); got.status != 2 || !strings.Contains(got.stderr, `there is no field "x"`) {
		t.Errorf("exit status %d: %s", got.status, got.stderr)
	}
	for _, wrong := range []string{"payload.x", "key=bob"} {
		if got := b.run(t, "retry", "b", "--set", wrong); got.status != 2 || !strings.Contains(got.stderr, "payload") {
			t.Errorf("--set %s: exit status %d: %s", wrong, got.status, got.stderr)
		}
	}
	if got := b.run(t, "retry", "--status", "cancelled", "--set", "payload.x.y=1"); got.status != 2 || !strings.Contains(got.stderr, `there is no field "x"`) {
		t.Errorf("exit status %d: %s", got.status, got.stderr)
	}
	b.run(t, "retry", "--status", "cancelled", "-d", "shop", "--set", "payload=7").want(t, 0, "retried 2 jobs\n", "")
	if got := string(b.job(t, "c").Payload); got != "7" {
		t.Errorf("the payload is %s", got)
	}
}
