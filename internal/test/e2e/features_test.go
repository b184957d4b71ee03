package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/jobs"
)

// everyFeature has two workers and the commands do all that Tidegate can do.
func everyFeature(t *testing.T, rs redisStore, names []string) {
	w := newWide(t, rs, names)
	workers := []*worker{w.start(), w.start()}
	for _, part := range []func(*testing.T, *wide){
		featureEnqueue, featureFamilies, featureActions, featureQueue, featureLook, featureLimit, featureKey, featureDoctor,
	} {
		part(t, w)
	}
	checkLogs(t, workers)
	for _, worker := range workers {
		if code, _ := worker.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// Jobs are enqueued one by one and many at once, and a given id is taken everywhere.
func featureEnqueue(t *testing.T, w *wide) {
	for i, dest := range w.dests {
		id := fmt.Sprintf("one-%d", i)
		if j := ask[seen](w.fleet, "enqueue", "-d", dest, "--id", id, "--priority", []string{"high", "default", "low"}[i%3], "--payload", `{"n":1}`); j.ID != id || j.Duplicate {
			t.Errorf("enqueued %+v", j)
		}
		other := w.dests[(i+1)%len(w.dests)]
		if j := ask[seen](w.fleet, "enqueue", "-d", other, "--id", id); !j.Duplicate || j.Destination != dest {
			t.Errorf("the id of a job of %s, enqueued for %s: %+v", dest, other, j)
		}
	}
	for i := range w.dests {
		w.await(fmt.Sprintf("one-%d", i), jobs.Completed)
	}
	var specs []*jobs.Spec
	for i := range 200 {
		specs = append(specs, jobs.New(w.dests[i%len(w.dests)], i, jobs.ID(fmt.Sprintf("many-%d", i)),
			jobs.Prioritize([]jobs.Priority{jobs.PriorityHigh, jobs.PriorityDefault, jobs.PriorityLow}[i%3])))
	}
	ids := w.enqueueSpecs(specs)
	w.waitCompleted(ids, 20*time.Second)
	results, err := w.client.EnqueueMany(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || !r.Job.Duplicate {
			t.Errorf("enqueued again: %+v, %v", r.Job, r.Err)
		}
	}
	accepted := w.api.Accepted()
	for _, id := range ids {
		if accepted[id] != 1 {
			t.Errorf("%s was accepted %d times", id, accepted[id])
		}
	}
	// What expires at once never runs, what is delayed runs when it is due.
	w.say("enqueue", "-d", w.dests[1], "--id", "expired", "--ttl", "0")
	w.say("enqueue", "-d", w.dests[2], "--id", "expires", "--ttl", "300ms", "--at", time.Now().Add(time.Hour).Format(time.RFC3339))
	started := time.Now()
	w.say("enqueue", "-d", w.dests[3], "--id", "delayed", "--delay", "1s")
	w.await("delayed", jobs.Completed)
	if took := time.Since(started); took < time.Second {
		t.Errorf("a job that was delayed by a second completed after %s", took)
	}
	w.await("expired", jobs.Expired)
	w.await("expires", jobs.Expired)
}

// Parents and children are of different destinations, and so of different nodes.
func featureFamilies(t *testing.T, w *wide) {
	n := len(w.dests)
	var families []family
	for i := range 2 * n {
		fam := family{fmt.Sprintf("f%d-a", i), fmt.Sprintf("f%d-b", i), fmt.Sprintf("f%d-c", i), fmt.Sprintf("f%d-d", i), i%4 == 3}
		path := "/good"
		if fam.bad {
			path = "/bad"
		}
		families = append(families, fam)
		w.enqueueSpecs([]*jobs.Spec{
			jobs.New(w.dests[i%n], i, jobs.ID(fam.a), jobs.Path(path)),
			jobs.New(w.dests[(i+1)%n], i, jobs.ID(fam.b), jobs.After(fam.a)),
			jobs.New(w.dests[(i+2)%n], i, jobs.ID(fam.c), jobs.After(fam.a), jobs.Prioritize(jobs.PriorityHigh)),
		})
		w.say("enqueue", "-d", w.dests[(i+3)%n], "--id", fam.d, "--after", fam.b+","+fam.c)
	}
	for _, fam := range families {
		want := jobs.Completed
		if fam.bad {
			want = jobs.Cancelled
		}
		w.await(fam.d, want)
	}
	first := map[string]int{}
	for _, r := range w.api.Receipts() {
		if _, known := first[r.Key]; !known && r.Status < 300 {
			first[r.Key] = r.N
		}
	}
	for _, fam := range families {
		fam.check(w.fleet, first)
	}
	if _, stderr, code := w.tidegate("enqueue", "-d", w.dests[0], "--after", "nobody"); code != 2 || !strings.Contains(stderr, "nobody") {
		t.Errorf("an unknown parent: exit %d: %s", code, stderr)
	}
}

// Jobs of all destinations are cancelled, paused, resumed and run again, by their
// ids and by filters.
func featureActions(t *testing.T, w *wide) {
	type acted struct{ Done, Asked, Refused int }
	check := func(want int, args ...string) {
		t.Helper()
		if got := ask[acted](w.fleet, args...); got.Done != want || got.Refused != 0 {
			t.Errorf("tidegate %s: %+v, want %d done", strings.Join(args, " "), got, want)
		}
	}
	var ids []string
	for i, dest := range w.dests {
		id := fmt.Sprintf("act-%d", i)
		w.say("queue", "pause", dest)
		w.say("enqueue", "-d", dest, "--id", id, "--batch", "acts")
		ids = append(ids, id)
	}
	check(len(ids), append([]string{"pause"}, ids...)...)
	w.await(ids[3], jobs.Paused)
	check(len(ids), append([]string{"resume"}, ids...)...)
	check(len(ids), "pause", "--batch", "acts")
	if page := ask[seenPage](w.fleet, "list", "--status", "paused", "--batch", "acts"); len(page.Items) != len(ids) {
		t.Errorf("%d jobs are paused", len(page.Items))
	}
	check(len(ids), "resume", "--status", "paused", "--batch", "acts")
	check(len(ids), append([]string{"cancel"}, ids...)...)
	w.await(ids[0], jobs.Cancelled)
	check(len(ids), append([]string{"retry"}, ids...)...)
	for _, dest := range w.dests {
		w.say("queue", "resume", dest)
	}
	w.waitCompleted(ids, 15*time.Second)

	var failed []string
	for i, dest := range w.dests {
		id := fmt.Sprintf("fail-%d", i)
		w.say("enqueue", "-d", dest, "--id", id, "--path", "/bad", "--batch", "fails")
		failed = append(failed, id)
	}
	for _, id := range failed {
		w.await(id, jobs.Failed)
	}
	w.api.SetScript(nil)
	check(len(failed), "retry", "--status", "failed", "--batch", "fails")
	w.waitCompleted(failed, 15*time.Second)
	w.api.SetScript(w.answer)
}

// The operator pauses a destination and resumes it.
func featureQueue(t *testing.T, w *wide) {
	for i, dest := range w.dests {
		id := fmt.Sprintf("queue-%d", i)
		w.say("queue", "pause", dest)
		w.say("enqueue", "-d", dest, "--id", id)
	}
	stats := ask[struct {
		Items []struct {
			Destination string
			Paused      bool
			Counts      map[string]int
		}
	}](w.fleet, "stats")
	paused := 0
	for _, s := range stats.Items {
		if slices.Contains(w.dests, s.Destination) && s.Paused && s.Counts["pending"] == 1 {
			paused++
		}
	}
	if paused != len(w.dests) {
		t.Errorf("stats while all are paused: %+v", stats)
	}
	for i, dest := range w.dests {
		w.say("queue", "resume", dest)
		w.await(fmt.Sprintf("queue-%d", i), jobs.Completed)
	}
}

// What was done can be looked up, whatever node it lies on.
func featureLook(t *testing.T, w *wide) {
	listed := map[string]bool{}
	for cursor := ""; ; {
		args := []string{"list", "--limit", "100"}
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		page := ask[seenPage](w.fleet, args...)
		for _, j := range page.Items {
			listed[j.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for i := range 200 {
		if id := fmt.Sprintf("many-%d", i); !listed[id] {
			t.Errorf("%s is not listed", id)
		}
	}
	for i, dest := range w.dests {
		id := fmt.Sprintf("one-%d", i)
		if j := ask[seen](w.fleet, "get", id); j.Destination != dest || j.Status != "completed" {
			t.Errorf("get: %+v", j)
		}
		history := ask[struct{ Items []struct{ Event string } }](w.fleet, "history", id)
		if n := len(history.Items); n < 2 || history.Items[0].Event != "created" || history.Items[n-1].Event != "completed" {
			t.Errorf("history of %s: %+v", id, history)
		}
	}
	if _, _, code := w.tidegate("get", "nobody"); code != 4 {
		t.Errorf("get of an unknown id: exit %d", code)
	}
}

// One destination is limited: its breaker opens, one call probes, and it recovers,
// while the others flow.
func featureLimit(t *testing.T, w *wide) {
	const limited = 1
	dest := w.dests[limited]
	before := len(w.calls(limited))
	w.limited[limited].Store(true)
	var ids []string
	for range 20 {
		ids = append(ids, w.enqueueSpecs([]*jobs.Spec{jobs.New(dest, 1)})...)
	}
	w.awaitBreaker(dest, breaker.Open)
	redistest.Await(t, 2*time.Minute, "a probe has failed", func() bool {
		s, err := breaker.DefaultNamespace.Get(t.Context(), w.rdb, dest)
		return err == nil && s.Probes > 0
	})
	others := w.enqueueSpecs([]*jobs.Spec{jobs.New(w.dests[0], 1), jobs.New(w.dests[2], 1), jobs.New(w.dests[3], 1)})
	w.waitCompleted(others, 5*time.Second)
	w.limited[limited].Store(false)
	w.waitCompleted(ids, 20*time.Second)
	w.awaitBreaker(dest, breaker.Closed)

	read, err := breaker.DefaultNamespace.ReadOne(t.Context(), w.rdb, breaker.Query{History: breaker.All}, dest)
	if err != nil {
		t.Fatal(err)
	}
	calls := w.calls(limited)[before:]
	if openings := quiet(t, read.History, calls); openings < 2 {
		t.Errorf("it opened %d times, with a probe that failed", openings)
	}
	incidents := ask[struct{ Items []breaker.Incident }](w.fleet, "breaker", "incidents", dest)
	if n := len(incidents.Items); n != 1 || incidents.Items[0].Ended.IsZero() || incidents.Items[0].Probes < 1 {
		t.Errorf("incidents: %+v", incidents)
	}
	refused := 0
	for _, r := range calls {
		if r.Status == http.StatusTooManyRequests {
			refused++
		}
	}
	if i := incidents.Items[0]; i.Wasted != refused {
		t.Errorf("the incident counts %d refused calls, the API %d", i.Wasted, refused)
	}
}

// calls are those of one destination.
func (w *wide) calls(i int) []fakeapi.Receipt {
	prefix := fmt.Sprintf("/%d", i)
	return slices.DeleteFunc(w.api.Receipts(), func(r fakeapi.Receipt) bool {
		return r.Path != prefix && !strings.HasPrefix(r.Path, prefix+"/")
	})
}

// The jobs of a key that is OPEN are held, and come back in their order.
func featureKey(t *testing.T, w *wide) {
	dest := w.dests[2]
	w.say("breaker", "trip", dest+"/alice", "--reason", "test")
	var held, free []string
	for i := range 12 {
		held = append(held, fmt.Sprintf("held-%d", i))
		free = append(free, fmt.Sprintf("free-%d", i))
		w.enqueueSpecs([]*jobs.Spec{
			jobs.New(dest, i, jobs.Key("alice"), jobs.ID(held[i])), jobs.New(dest, i, jobs.Key("bob"), jobs.ID(free[i])),
		})
	}
	w.waitCompleted(free, 15*time.Second)
	redistest.Await(t, 2*time.Minute, "all jobs of alice are held", func() bool {
		n, err := w.rdb.ZCard(t.Context(), store.HeldKey(store.DefaultNamespace.Queue(dest, store.Default))).Result()
		return err == nil && int(n) == len(held)
	})
	if page := ask[seenPage](w.fleet, "list", "--key", "alice", "--status", "pending"); len(page.Items) != len(held) {
		t.Errorf("%d jobs of alice are listed", len(page.Items))
	}
	if list := w.say("breaker", "list"); !strings.Contains(list, dest+"/alice") {
		t.Errorf("the list of breakers:\n%s", list)
	}
	if done := ask[struct{ Done int }](w.fleet, "cancel", "held-0"); done.Done != 1 {
		t.Errorf("cancel of a held job: %+v", done)
	}
	w.say("breaker", "reset", dest+"/alice")
	w.waitCompleted(held[1:], 15*time.Second)
	if n := w.api.Accepted()["held-0"]; n != 0 {
		t.Errorf("the cancelled job was accepted %d times", n)
	}
}

// The doctor finds what is out of order on every node, and repairs it.
func featureDoctor(t *testing.T, w *wide) {
	type report struct {
		Checked  int
		Findings []struct {
			Kind, Queue, ID string
			Count           int
			Repaired        bool
		}
	}
	if got := ask[report](w.fleet, "doctor"); got.Checked < 250 || len(got.Findings) != 0 {
		t.Fatalf("the doctor says: %+v", got)
	}
	for i, dest := range w.dests {
		id := fmt.Sprintf("lost-%d", i)
		w.say("enqueue", "-d", dest, "--id", id, "--delay", "1h")
		if n, err := w.rdb.ZRem(t.Context(), store.ScheduledKey(store.DefaultNamespace.Queue(dest, store.Default)), id).Result(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	if got := ask[report](w.fleet, "doctor"); len(got.Findings) != len(w.dests) {
		t.Errorf("the doctor says: %+v", got)
	}
	if got := ask[report](w.fleet, "doctor", "--dry-run"); len(got.Findings) != 0 {
		t.Errorf("after the repair the doctor says: %+v", got)
	}
	for i := range w.dests {
		w.say("cancel", fmt.Sprintf("lost-%d", i))
	}
}
