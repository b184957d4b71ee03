package e2e

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// wide is a fleet that serves several destinations of one API, each at a path of its
// own: /0, /1 and so on.
type wide struct {
	*fleet
	dests []string
	// limited says of each destination that the API refuses its calls.
	limited []atomic.Bool
}

// newWide gives the destinations the names.
func newWide(t *testing.T, rs redisStore, names []string) *wide {
	t.Helper()
	w := &wide{
		fleet: newFleet(t, rs, fakeapi.Options{Latency: 10 * time.Millisecond}), dests: names,
		limited: make([]atomic.Bool, len(names)),
	}
	w.dest = names[0]
	for i, name := range names {
		block := fmt.Sprintf("DESTINATION_%d_", i)
		w.env[block+"NAME"] = name
		w.env[block+"URL"] = fmt.Sprintf("%s/%d", w.url, i)
		w.env[block+"CONCURRENCY"] = "5"
	}
	maps.Copy(w.env, map[string]string{
		"CIRCUIT_BREAKER_COOLDOWN_JITTER": "0",
		"RETRY_LOOP_INTERVAL_MS":          "200",
	})
	w.api.SetScript(w.answer)
	var err error
	w.client, err = jobs.NewClient(w.rdb, jobs.WithDestinations(names...), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// answer refuses what is limited: a whole destination, or the key alice of it.
func (w *wide) answer(_ int, r *http.Request) *fakeapi.Answer {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	i, err := strconv.Atoi(first)
	switch {
	case err != nil || i >= len(w.limited):
		return &fakeapi.Answer{Status: http.StatusNotFound}
	case w.limited[i].Load():
		return &fakeapi.Answer{Status: http.StatusTooManyRequests}
	case strings.HasSuffix(rest, "bad"):
		return &fakeapi.Answer{Status: http.StatusUnprocessableEntity}
	}
	return nil
}

// say runs a command that must succeed and returns what it prints.
func (f *fleet) say(args ...string) string {
	f.t.Helper()
	out, stderr, code := f.tidegate(args...)
	if code != 0 {
		f.t.Fatalf("tidegate %s: exit %d: %s%s", strings.Join(args, " "), code, out, stderr)
	}
	if text := strings.TrimSpace(stderr); text != "" {
		f.t.Errorf("tidegate %s complains: %s", strings.Join(args, " "), text)
	}
	return out
}

// ask runs a command that must succeed and reads the JSON that it prints.
func ask[T any](f *fleet, args ...string) T {
	f.t.Helper()
	out := f.say(append(args, "-o", "json")...)
	var doc T
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		f.t.Fatalf("tidegate %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return doc
}

// seen is what the commands print of a job.
type seen struct {
	ID, Destination, Status, Batch string
	LastError                      string `json:"last_error"`
	Duplicate                      bool
}

type seenPage struct {
	Items []seen
	Next  string
}

// await waits until the command says that a job has a status.
func (f *fleet) await(id string, want jobs.Status) {
	f.t.Helper()
	redistest.Await(f.t, 2*time.Minute, "job "+id+" is "+string(want), func() bool { return f.job(id).Status == want })
}

// awaitBreaker waits until a breaker is in a state.
func (f *fleet) awaitBreaker(name string, want breaker.State) {
	f.t.Helper()
	redistest.Await(f.t, 2*time.Minute, name+" is "+want.String(), func() bool {
		s, err := breaker.DefaultNamespace.Get(f.t.Context(), f.rdb, name)
		return err == nil && s.State == want
	})
}

// checkLogs looks for what no worker may have logged.
func checkLogs(t *testing.T, workers []*worker) {
	t.Helper()
	for _, w := range workers {
		for _, line := range w.lines() {
			for _, sign := range []string{"CROSSSLOT", "MOVED", "NOSCRIPT", "NOPERM", "NOAUTH", `"level":"ERROR"`} {
				if strings.Contains(line, sign) {
					t.Errorf("worker %d logged: %s", w.pid(), line)
				}
			}
		}
	}
}
