package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/view/ops"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, append([]string{"DESTINATION_1_NAME=blog", "DESTINATION_1_URL=https://blog.example.com"}, shop...)...)
	b.enqueue(t, "--batch monday", "a", "b")
	b.enqueue(t, "--batch monday --after a", "c")
	b.enqueue(t, "--batch tuesday", "other")
	b.run(t, "enqueue", "-d", "blog", "--id", "d", "--batch", "monday", "--priority", "low").ok(t)
	b.run(t, "cancel", "b").ok(t)

	b.run(t, "batch", "get", "monday").want(t, 0, "batch      monday\njobs       4\nended      1 (25 %)\nwaiting    1\npending    2\ncancelled  1\n", "")
	got := decode[jobs.BatchStatus](t, b.run(t, "batch", "get", "monday", "-o", "json").ok(t))
	want := jobs.BatchStatus{Batch: "monday", Total: 4, Counts: map[jobs.Status]int{jobs.Waiting: 1, jobs.Pending: 2, jobs.Cancelled: 1}, Progress: 0.25}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if out := b.run(t, "list", "--batch", "monday", "--status", "cancelled").ok(t); strings.Count(out, "\n") != 2 || !strings.Contains(out, "\nb ") {
		t.Errorf("list:\n%s", out)
	}
}

// inJSON is an error as -o json writes it.
func inJSON(line string) string {
	text, _ := json.Marshal(map[string]string{"error": strings.TrimSuffix(strings.TrimPrefix(line, "tidegate: "), "\n")})
	return string(text) + "\n"
}

func TestBatchWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, serveAPI(t)...)
	b.enqueue(t, "--batch good --path /soon", "a", "b", "c")
	b.enqueue(t, "--batch mixed", "d")
	b.enqueue(t, "--batch mixed --path /bad", "e")
	b.enqueue(t, "--batch mixed --ttl 0", "f")
	b.work(t)
	b.run(t, "batch", "get", "good", "--wait").want(t, 0, "batch      good\njobs       3\nended      3 (100 %)\ncompleted  3\n", "")
	b.run(t, "batch", "get", "mixed", "-w").want(t, 1, "batch      mixed\njobs       3\nended      3 (100 %)\ncompleted  1\nfailed     1\nexpired    1\n",
		"tidegate: not all jobs of the batch completed: 1 failed, 1 expired; see: tidegate list --batch mixed --status failed,expired\n")
	got := b.run(t, "batch", "get", "mixed", "--wait", "-o", "json")
	if doc := decode[jobs.BatchStatus](t, got.stdout); got.status != 1 || !doc.Done || doc.Progress != 1 {
		t.Errorf("exit status %d, %+v", got.status, doc)
	}
	// Without --wait it is only told.
	b.run(t, "batch", "get", "mixed").ok(t)
}

func TestBatchWaitInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "--batch monday", "a")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stdout, stderr bytes.Buffer
	status := make(chan int)
	rdb := b.server.Client(t)
	go func() {
		status <- Run(ctx, Process{Args: []string{"batch", "get", "monday", "--wait"}, Environ: b.env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	}()
	redistest.Eventually(t, "it waits", func() bool {
		clients, err := rdb.ClientList(t.Context()).Result()
		return err == nil && strings.Contains(clients, "name=tidegate-cli")
	})
	stop()
	if got := <-status; got != 1 || stdout.Len() > 0 || stderr.String() != "tidegate: interrupted\n" {
		t.Errorf("exit status %d, stdout %q, stderr %q", got, stdout.String(), stderr.String())
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{0: "0 %", 0.0001: "1 %", 0.254: "25 %", 0.5: "50 %", 0.9999: "99 %", 1: "100 %"} {
		if got := percent(part); got != want {
			t.Errorf("percent(%v) is %q, want %q", part, got, want)
		}
	}
}

func TestGetOfEndedJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "parent")
	b.enqueue(t, "--batch monday --after parent --ttl 7d", "child")
	const at = `([0-9-]+ )?[0-9:]{8}`
	want := regexp.MustCompile(`^id           child
destination  shop
status       waiting
waits        waiting for its parents to complete: parent
batch        monday
after        parent
created      ` + at + ` \([0-9ms]+ ago\)
expires      ` + at + ` \(in (7d|6d23h[0-9ms]*)\)
payload      {}
$`)
	if out := b.run(t, "get", "child").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	b.run(t, "cancel", "parent", "--reason", "wrong file").ok(t)
	want = regexp.MustCompile(`^id           child
destination  shop
status       cancelled
batch        monday
after        parent
created      ` + at + ` \([0-9ms]+ ago\)
cancelled    ` + at + ` \([0-9ms]+ ago\)
last error   parent parent was cancelled: wrong file
payload      {}
$`)
	if out := b.run(t, "get", "child").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	b.enqueue(t, "--ttl 0 --delay 2h", "gone")
	want = regexp.MustCompile(`^id           gone
destination  shop
status       expired
created      ` + at + ` \([0-9ms]+ ago\)
expired      ` + at + ` \([0-9ms]+ ago\)
payload      {}
$`)
	if out := b.run(t, "get", "gone").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}

func TestListOfAllStatuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.serve(t, "shop")
	b.enqueue(t, "", "j1-pending", "j2-paused", "j3-cancelled")
	b.enqueue(t, "--after j1-pending", "j4-waiting")
	b.enqueue(t, "--ttl 0", "j5-expired")
	b.run(t, "pause", "j2-paused").ok(t)
	b.run(t, "cancel", "j3-cancelled", "--reason", "wrong file").ok(t)
	want := regexp.MustCompile(`^ID            DESTINATION  KEY  STATUS     AGE +CALL +DETAIL
j5-expired    shop         -    expired    [0-9ms]+ +- +expired ([0-9-]+ )?[0-9:]{8}
j4-waiting    shop         -    waiting    [0-9ms]+ +- +waiting for its parents to complete: j1-pending
j3-cancelled  shop         -    cancelled  [0-9ms]+ +- +wrong file
j2-paused     shop         -    paused     [0-9ms]+ +- +paused until it is resumed
j1-pending    shop         -    pending    [0-9ms]+ +- +in line for a free worker
$`)
	if out := b.run(t, "list").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	for _, status := range []string{"pending", "paused", "cancelled", "waiting", "expired"} {
		doc := decode[ops.Page[document]](t, b.run(t, "list", "--status", status, "-o", "json").ok(t))
		if len(doc.Items) != 1 || !strings.HasSuffix(doc.Items[0].ID, status) {
			t.Errorf("--status %s: %+v", status, doc.Items)
		}
	}
}
