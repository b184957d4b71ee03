package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakeapi/loopback"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// The secrets of callbacks: an old one and the one that takes its place.
const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// called is one callback as it came.
type called struct {
	id, job, status string // status of the job
	answered        int
}

// owner is an application that is told of its jobs' ends. It can be out of reach, or
// answer with an error.
type owner struct {
	t      *testing.T
	server *loopback.Server
	url    string
	answer atomic.Int32 // the status

	mu    sync.Mutex
	calls []called
}

func newOwner(t *testing.T) *owner {
	t.Helper()
	o := &owner{t: t}
	o.answer.Store(http.StatusNoContent)
	o.server = loopback.NewServer("owner", o)
	base, err := o.server.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.server.Close() })
	o.url = base + "/hooks/tidegate?token=hunter22"
	return o
}

// ServeHTTP verifies a callback by either secret, as of now.
func (o *owner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was cut
	}
	for _, secret := range []string{oldSecret, newSecret} {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err == nil {
			err = verifier.Verify(body, r.Header)
		}
		if err != nil {
			o.t.Errorf("a callback is not signed well: %v", err)
		}
	}
	stamp, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	if age := time.Since(time.Unix(stamp, 0)); err != nil || age > 40*time.Second {
		o.t.Errorf("a callback was signed %s before it came", age)
	}
	var event struct {
		Type string
		Data struct{ ID, Status string }
	}
	if err := json.Unmarshal(body, &event); err != nil || event.Type != "job."+event.Data.Status {
		o.t.Errorf("callback %s: %v", body, err)
	}
	code := int(o.answer.Load())
	o.mu.Lock()
	o.calls = append(o.calls, called{r.Header.Get("webhook-id"), event.Data.ID, event.Data.Status, code})
	o.mu.Unlock()
	w.WriteHeader(code)
}

func (o *owner) heard(code int) []called {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.calls), func(c called) bool { return c.answered != code })
}

// The owner of jobs is out of reach (for a minute, in the long tests), comes back with
// errors and is well at last. It hears of every end once, under an id that stays the
// same, signed anew each time; and its absence costs the jobs themselves nothing.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	o := newOwner(t)
	f.env["DESTINATION_0_CALLBACK_URL"] = o.url
	f.env["DESTINATION_0_CALLBACK_SECRET"] = oldSecret + "," + newSecret
	f.env["JOB_RETENTION"] = "24h"
	workers := []*worker{f.start(), f.start()}
	for _, queue := range store.DefaultNamespace.Queues(f.dest) {
		redistest.Await(t, 2*time.Minute, "ends of "+queue+" are reported", func() bool {
			return f.rdb.Exists(t.Context(), store.EventsRelayedKey(queue)).Val() == 1
		})
	}

	if err := o.server.Down(); err != nil {
		t.Fatal(err)
	}
	down := time.Now()
	want := map[string]string{}
	completed := f.enqueue(60)
	for _, id := range completed {
		want[id] = "completed"
	}
	later := f.enqueue(2, jobs.Delay(time.Hour), jobs.Prioritize(jobs.PriorityHigh))
	want[later[0]], want[later[1]] = "cancelled", "cancelled"
	if _, stderr, code := f.tidegate("cancel", later[0], later[1]); code != 0 {
		t.Fatalf("cancel: %d %s", code, stderr)
	}
	want[f.enqueue(1, jobs.At(time.Now().Add(time.Hour)), jobs.TTL(time.Second), jobs.Prioritize(jobs.PriorityLow))[0]] = "expired"
	f.waitCompleted(completed, 10*time.Second)
	name := "tidegate-callbacks/" + f.dest
	redistest.Await(t, 2*time.Minute, "the receiver's breaker opens", func() bool {
		s, err := breaker.Get(t.Context(), f.rdb, name)
		return err == nil && s.State == breaker.Open
	})
	if state := f.state(); state != breaker.Closed {
		t.Errorf("the destination's own breaker is %s", state)
	}
	if long {
		<-time.After(time.Minute - time.Since(down)) // the outage itself
	}
	o.answer.Store(http.StatusInternalServerError)
	if err := o.server.Up(); err != nil {
		t.Fatal(err)
	}
	patience := 30 * time.Second
	if long {
		patience = 6 * time.Minute // a cooldown has grown
	}
	redistest.Await(t, patience, "two errors", func() bool { return len(o.heard(http.StatusInternalServerError)) >= 2 })
	o.answer.Store(http.StatusNoContent)
	well := time.Now()
	redistest.Await(t, patience, "all ends are told", func() bool { return len(o.heard(http.StatusNoContent)) >= len(want) })
	t.Logf("down for %s; all %d ends were told %s after it was well; %d tries failed with 500",
		well.Sub(down).Round(time.Second), len(want), time.Since(well).Round(time.Millisecond), len(o.heard(http.StatusInternalServerError)))

	got, ids, tries := map[string]string{}, map[string]string{}, map[string]int{}
	for _, c := range append(o.heard(http.StatusInternalServerError), o.heard(http.StatusNoContent)...) {
		if other := ids[c.job]; other != "" && other != c.id {
			t.Errorf("the end of %s was told under the ids %s and %s", c.job, other, c.id)
		}
		ids[c.job] = c.id
		tries[c.job]++
		if c.answered == http.StatusNoContent {
			if got[c.job] != "" {
				t.Errorf("the end of %s was told twice", c.job)
			}
			got[c.job] = c.status
		}
	}
	for id, status := range want {
		if got[id] != status {
			t.Errorf("%s was told as %q, want %q", id, got[id], status)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d ends were told, want %d", len(got), len(want))
	}
	f.exactlyOnce(completed)
	callbacksAreSeen(t, f, name, ids)
	secrets := []string{oldSecret[6:], newSecret[6:], "hunter22"}
	for _, w := range workers {
		if code, _ := w.stop(15); code != 0 {
			t.Errorf("a worker ended with %d", code)
		}
		for _, secret := range secrets {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("%s stands in a worker's log", secret)
			}
		}
	}
}

// callbacksAreSeen looks at what operators see of it.
func callbacksAreSeen(t *testing.T, f *fleet, name string, ids map[string]string) {
	t.Helper()
	out, stderr, code := f.tidegate("list", "--destination", "tidegate-callbacks", "--status", "completed", "--limit", "1000", "-o", "json")
	var list struct{ Items []jobs.Job }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		t.Fatalf("list: %d %v %s", code, err, stderr)
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	for _, j := range list.Items {
		if !known[j.ID] || j.Key != f.dest {
			t.Errorf("a callback that nobody has heard: %s of %s", j.ID, j.Key)
		}
		delete(known, j.ID)
	}
	if len(known) > 0 {
		t.Errorf("callbacks that are not listed as completed: %v", known)
	}
	if out, stderr, code := f.tidegate("list"); code != 0 || strings.Contains(out, f.dest+":default:") {
		t.Errorf("list shows callbacks though it was not asked for them: %d %s %s", code, out, stderr)
	}
	if out, stderr, code := f.tidegate("breaker", "history", name); code != 0 || !strings.Contains(out, "OPEN") {
		t.Errorf("breaker history %s: %d %s %s", name, code, out, stderr)
	}
	// Delivered ones are kept for an hour, whatever JOB_RETENTION says.
	kept, err := f.rdb.ZRangeWithScores(t.Context(), store.CompletedKey(store.DefaultNamespace.Queue("tidegate-callbacks", store.Default)), 0, -1).Result()
	if err != nil || len(kept) != len(ids) {
		t.Fatalf("%d are kept, want %d: %v", len(kept), len(ids), err)
	}
	for _, z := range kept {
		left := time.Until(time.Unix(int64(z.Score), 0))
		if left < 50*time.Minute || left > time.Hour+time.Second {
			t.Errorf("%s is kept for %s, want an hour", fmt.Sprint(z.Member), left)
			break
		}
	}
}
