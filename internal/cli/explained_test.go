package cli

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// scriptedAPI is the environment of a destination whose API answers as it is told to.
func scriptedAPI(t *testing.T, script func(n int, r *http.Request) *fakeapi.Answer) []string {
	t.Helper()
	api := fakeapi.New(fakeapi.Options{Script: script})
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return []string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=" + url, "LOG_FORMAT=json"}
}

// waits is what get says of why a job waits.
func (b *bench) waits(t *testing.T, id string) string {
	t.Helper()
	for line := range strings.Lines(b.run(t, "get", id).ok(t)) {
		if text, found := strings.CutPrefix(line, "waits"); found {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// A worker that has stopped serves nothing, however short a time ago that was.
func TestDoctorKnowsThatTheOnlyWorkerHasStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, serveAPI(t)...)
	stop := b.work(t)
	redistest.Eventually(t, "the worker has registered", func() bool { return !strings.Contains(b.run(t, "stats").ok(t), "never") })
	b.run(t, "doctor").want(t, 0, "checked 0 jobs: no problems found\n", "")
	stop()
	b.enqueue(t, "", "a")
	got := b.run(t, "doctor")
	want := regexp.MustCompile(`(?m)^no_worker  tidegate:shop  1      no        -        jobs wait, and no worker has served shop since [0-9TZ:-]+; start one$`)
	if got.status != 1 || !want.MatchString(got.stdout) {
		t.Errorf("exit status %d:\n%s\nwant 1 and a line like %s", got.status, got.stdout, want)
	}
	if got := b.waits(t, "a"); !regexp.MustCompile(`^no worker has served shop for [0-9]+s; start one with: tidegate worker$`).MatchString(got) {
		t.Errorf("waits %q", got)
	}
}

// The reason of a pause stands where the pause is shown.
func TestReasonsOfPauses(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t, shop...)
	b.serve(t, "shop")
	b.enqueue(t, "", "a", "b")
	b.run(t, "pause", "a", "--reason", "wrong file").ok(t)
	b.run(t, "queue", "pause", "shop", "--reason", "maintenance of theirs").ok(t)
	me := operator()
	if got, want := b.waits(t, "a"), "paused by "+me+" (wrong file) until it is resumed"; got != want {
		t.Errorf("a paused job waits %q, want %q", got, want)
	}
	byOperator := "shop is paused by " + me + " (maintenance of theirs)"
	if got, want := b.waits(t, "b"), byOperator+"; its jobs wait until: tidegate queue resume shop"; got != want {
		t.Errorf("a job of a paused destination waits %q, want %q", got, want)
	}
	for _, command := range []string{"stats", "doctor", "list"} {
		if got := b.run(t, command); !strings.Contains(got.stdout, byOperator[len("shop is "):]) {
			t.Errorf("%s does not say why shop is paused:\n%s", command, got.stdout)
		}
	}
	b.run(t, "resume", "a").ok(t)
	b.run(t, "queue", "resume", "shop").ok(t)
	b.run(t, "pause", "a").ok(t)
	if got, want := b.waits(t, "a"), "paused by "+me+" until it is resumed"; got != want {
		t.Errorf("paused again without a reason: %q, want %q", got, want)
	}
	b.run(t, "queue", "pause", "shop", "--reason", strings.Repeat("x", maxReason+1)).want(t, 2, "", "tidegate: --reason has more than "+strconv.Itoa(maxReason)+" characters\n")
}

// Under a rate jobs wait for their turn, not for a worker, and each says when that is.
func TestGetOfAJobHeldByItsRate(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t, append(scriptedAPI(t, nil), "DESTINATION_0_RATE=60/1h")...)
	b.work(t)
	b.enqueue(t, "", "first")
	b.await(t, "first", jobs.Completed)
	b.enqueue(t, "", "a", "b", "c")
	for id, want := range map[string]string{
		"a": `next in line, its turn is due in (1m|[0-9]+s), at [0-9: -]+`,
		"b": `1 job is ahead, its turn is due in (2m|1m[0-9]+s), at [0-9: -]+`,
		"c": `2 jobs are ahead, its turn is due in (3m|2m[0-9]+s), at [0-9: -]+`,
	} {
		if got := b.waits(t, id); !regexp.MustCompile("^RATE allows 60 calls an hour; " + want + "$").MatchString(got) {
			t.Errorf("%s waits %q, want like %s", id, got, want)
		}
	}
	next := regexp.MustCompile(`RATE allows 60 calls an hour; the next is due in (1m|[0-9]+s), at [0-9: -]+`)
	for _, command := range [][]string{{"stats"}, {"list"}, {"breaker", "list"}} {
		if got := b.run(t, command...).ok(t); !next.MatchString(got) {
			t.Errorf("%v does not name the rate:\n%s", command, got)
		}
	}
	if got := b.run(t, "breaker", "get", "shop").ok(t); !strings.Contains(got, "rate      60 calls an hour; the next is due in ") {
		t.Errorf("breaker get:\n%s", got)
	}
	b.enqueue(t, "--priority high", "urgent")
	if got := b.waits(t, "c"); !strings.Contains(got, "; 2 jobs are ahead, its turn is not before ") {
		t.Errorf("beside a job of another priority: %q", got)
	}
}
