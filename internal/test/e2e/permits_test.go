//go:build soak

package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Three workers and 20 clients of permits in Python and Node, by two instances of the API, learn one limit of which the
// API under it says nothing, and share it: few calls are refused from then on. Clients that are killed in the middle leave
// nothing behind.
func TestPermitsShareALearnedLimit(t *testing.T) {
	const quota, window, learns, measured = 20, 5 * time.Second, 8, 16
	const most = 2 // refused calls a window
	f := newFleet(t, redistest.Start(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: quota, Window: window}, Latency: 200 * time.Millisecond, Light: true,
	})
	f.env["LISTEN_ADDR"], f.env["PYTHONPATH"], f.env["PYTHONDONTWRITEBYTECODE"] = "127.0.0.1:0", "../../../sdk/python", "1"
	f.enqueue(2 * quota * (learns + measured))
	workers := []*worker{f.start(), f.start(), f.start()}
	apis := []*instance{f.apiInstance(), f.apiInstance()}
	var clients []*worker
	start := func(i int) *worker {
		f.env["TIDEGATE_URL"] = apis[i%2].url
		command := []string{"python3", "testdata/permits.py", "node", "testdata/permits.mjs"}[i/2%2*2:]
		return f.run(exec.Command(command[0], command[1], f.dest, f.url, "5"))
	}
	for i := range 4 {
		clients = append(clients, start(i))
	}
	for n := range learns + measured {
		<-time.After(window)
		if n >= learns && n%4 == 0 { // killed in the middle of calls, and others come
			i := n / 4 % len(clients)
			clients[i].stop(syscall.SIGKILL)
			clients[i] = start(i)
		}
	}

	type span struct {
		from            time.Time
		refused, passed int
	}
	var windows []span
	by := map[string]int{}
	receipts := f.api.Receipts()
	slices.SortFunc(receipts, func(a, b fakeapi.Receipt) int { return cmp.Compare(a.N, b.N) })
	for _, r := range receipts {
		if n := len(windows); n == 0 || r.At.Sub(windows[n-1].from) >= window {
			windows = append(windows, span{from: r.At})
		}
		w := &windows[len(windows)-1]
		if r.Status == http.StatusTooManyRequests {
			w.refused++
		} else {
			w.passed++
			by[r.Path]++
		}
	}
	refused, passed, worst := 0, 0, 0
	for i, w := range windows {
		t.Logf("window %d at %s: %d accepted, %d refused", i, w.from.Sub(windows[0].from).Round(time.Millisecond), w.passed, w.refused)
		if i >= learns && i < len(windows)-1 {
			refused, passed, worst = refused+w.refused, passed+w.passed, max(worst, w.refused)
		}
	}
	after := len(windows) - 1 - learns
	t.Logf("%d windows after %d: %.2f refused each, %d at most; %.3f of the calls possible; accepted by path: %v",
		after, learns, float64(refused)/float64(after), worst, float64(passed)/float64(after*quota), by)
	if refused > most*after {
		t.Errorf("%d calls were refused in %d windows, want at most %d each", refused, after, most)
	}
	for _, path := range []string{"/", "/python", "/node"} {
		if by[path] < quota {
			t.Errorf("%d calls of %s were accepted", by[path], path)
		}
	}

	kept := func() int { return len(f.rdb.Keys(t.Context(), "tidegate:permit:*").Val()) }
	redistest.Await(t, time.Minute, "a client calls", func() bool { return kept() > 0 })
	for _, c := range clients {
		c.stop(syscall.SIGKILL)
	}
	if kept() == 0 {
		t.Error("no client was killed in the middle of a call")
	}
	for _, w := range workers {
		w.stop(syscall.SIGTERM)
	}
	redistest.Await(t, 30*time.Second, "leases have ended", func() bool {
		flying, err := f.rdb.ZCount(t.Context(), "tidegate:{"+f.dest+"}:breaker-inflight", fmt.Sprint("(", time.Now().UnixMilli()), "+inf").Result()
		return err == nil && flying == 0 && kept() == 0
	})
}
