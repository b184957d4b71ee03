package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/lab/fakeapi/loopback"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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

// The owner of jobs is out of reach, comes back with errors and is well at last. It gets the end of
// each job once, under an id that stays the same, signed anew each time; the jobs themselves do not wait.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	o := newOwner(t)
	f.env["DESTINATION_0_CALLBACK_URL"] = o.url
	f.env["DESTINATION_0_CALLBACK_SECRET"] = oldSecret + "," + newSecret
	workers := []*worker{f.start(), f.start()}
	for _, queue := range store.DefaultNamespace.Queues(f.dest) {
		redistest.Await(t, 2*time.Minute, "ends of "+queue+" are reported", func() bool {
			return f.rdb.Exists(t.Context(), store.EventsRelayedKey(queue)).Val() == 1
		})
	}
	if err := o.server.Down(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	completed := f.enqueue(20)
	for _, id := range completed {
		want[id] = "completed"
	}
	later := f.enqueue(1, jobs.Delay(time.Hour), jobs.Prioritize(jobs.PriorityHigh))[0]
	f.say("cancel", later)
	want[later] = "cancelled"
	want[f.enqueue(1, jobs.At(time.Now().Add(time.Hour)), jobs.TTL(time.Second), jobs.Prioritize(jobs.PriorityLow))[0]] = "expired"
	f.waitCompleted(completed, 10*time.Second)
	f.awaitBreaker("tidegate-callbacks/"+f.dest, breaker.Open)
	o.answer.Store(http.StatusInternalServerError)
	if err := o.server.Up(); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, 2*time.Minute, "two errors", func() bool { return len(o.heard(http.StatusInternalServerError)) >= 2 })
	o.answer.Store(http.StatusNoContent)
	redistest.Await(t, 2*time.Minute, "all ends are delivered", func() bool { return len(o.heard(http.StatusNoContent)) >= len(want) })

	ids := map[string]string{}
	for _, c := range append(o.heard(http.StatusInternalServerError), o.heard(http.StatusNoContent)...) {
		if other := ids[c.job]; other != "" && other != c.id {
			t.Errorf("the end of %s was delivered under the ids %s and %s", c.job, other, c.id)
		}
		if ids[c.job] = c.id; c.answered != http.StatusNoContent {
			continue
		}
		if status := want[c.job]; status != c.status {
			t.Errorf("%s was delivered as %q, want %q", c.job, c.status, status)
		}
		delete(want, c.job)
	}
	if len(want) > 0 {
		t.Errorf("not delivered, or twice: %v", want)
	}
	f.exactlyOnce(completed)
	for _, w := range workers {
		for _, secret := range []string{oldSecret[6:], newSecret[6:], "hunter22"} {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("%s stands in a worker's log", secret)
			}
		}
	}
}
