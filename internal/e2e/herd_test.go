package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
)

const (
	herdProcesses  = 4
	herdGoroutines = 16
)

// herd is some processes with many goroutines each, which share one breaker in front
// of an API that always answers 429.
type herd struct {
	t         *testing.T
	settings  herdSettings
	rdb       redis.UniversalClient
	api       *fakeapi.API
	processes []*process
	order     atomic.Pointer[string] // for the next prober whose call arrives
	vanished  chan int               // its process
}

func startHerd(t *testing.T, cooldown, lease time.Duration) *herd {
	t.Helper()
	server := redistest.Start(t)
	h := &herd{t: t, rdb: server.Client(t), vanished: make(chan int, 1)}
	h.api = fakeapi.New(fakeapi.Options{Latency: 10 * time.Millisecond, Script: h.answer})
	url, err := h.api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.api.Close() })
	h.settings = herdSettings{
		Redis: server.Addr(), API: url, Destination: redistest.Name(t, "herd"),
		Goroutines: herdGoroutines, Cooldown: cooldown, Lease: lease,
	}
	for range herdProcesses {
		h.processes = append(h.processes, startMember(t, h.settings))
	}
	return h
}

func (h *herd) answer(_ int, r *http.Request) *fakeapi.Answer {
	a := &fakeapi.Answer{Status: http.StatusTooManyRequests}
	if how := h.order.Load(); how != nil && r.Header.Get(headerProbe) == "true" && h.order.CompareAndSwap(how, nil) {
		pid, _ := strconv.Atoi(r.Header.Get(headerPID))
		signal := syscall.SIGSTOP
		if *how == "kill" {
			signal = syscall.SIGKILL
		}
		_ = syscall.Kill(pid, signal)
		h.vanished <- pid
	}
	return a
}

// cooldowns waits until n more probes have failed.
func (h *herd) cooldowns(n int) {
	h.t.Helper()
	until := h.status().Probes + n
	redistest.Await(h.t, time.Minute, fmt.Sprintf("%d failed probes", until), func() bool { return h.status().Probes >= until })
}

func (h *herd) status() breaker.Status {
	h.t.Helper()
	s, err := breaker.Get(context.Background(), h.rdb, h.settings.Destination)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// halfOpens returns the generations of HALF_OPEN and checks the steps: each OPEN
// lasts for its cooldown, and each HALF_OPEN ends with a failed probe.
func (h *herd) halfOpens() []uint64 {
	h.t.Helper()
	events, err := breaker.History(context.Background(), h.rdb, h.settings.Destination, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	var out []uint64
	for i, e := range events {
		want := breaker.Open
		if i%2 == 1 {
			want = breaker.HalfOpen
			out = append(out, e.Generation)
			if e.At.Before(events[i-1].OpenUntil) {
				h.t.Errorf("the cooldown was to last until %s and ended at %s", events[i-1].OpenUntil, e.At)
			}
		}
		if e.To != want || e.Incident != events[0].Incident {
			h.t.Errorf("step %d is %s -> %s of %s, want to %s of %s", i, e.From, e.To, e.Incident, want, events[0].Incident)
		}
	}
	return out
}

// herdCall is a call as the API saw it, with the leave that it was made with.
type herdCall struct {
	at         time.Time
	pid        int
	generation uint64
	probe      bool
	until      time.Time
}

func (h *herd) calls() []herdCall {
	h.t.Helper()
	var out []herdCall
	for _, r := range h.api.Receipts() {
		number := func(name string) int64 {
			n, err := strconv.ParseInt(r.Header.Get(name), 10, 64)
			if err != nil {
				h.t.Fatal(err)
			}
			return n
		}
		c := herdCall{at: r.At, pid: int(number(headerPID)), generation: uint64(number(headerGeneration))}
		if c.probe = r.Header.Get(headerProbe) == "true"; c.probe {
			c.until = time.Unix(0, number(headerUntil))
		}
		out = append(out, c)
	}
	return out
}

// probes returns the calls of each HALF_OPEN, by its generation. Every other call must
// have had its leave before the opening: each goroutine can have one in flight then,
// and a few more were made until the answers counted.
func (h *herd) probes() map[uint64][]herdCall {
	h.t.Helper()
	events, err := breaker.History(context.Background(), h.rdb, h.settings.Destination, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	opening := 0
	out := map[uint64][]herdCall{}
	for _, c := range h.calls() {
		if c.probe {
			// A permit bears the version that gave it: its HALF_OPEN's, or a later one.
			i := slices.IndexFunc(events, func(e breaker.Event) bool { return e.Generation > c.generation })
			if i < 0 {
				i = len(events)
			}
			if i == 0 || events[i-1].To != breaker.HalfOpen {
				h.t.Errorf("a probe with generation %d, which was none of HALF_OPEN", c.generation)
				continue
			}
			out[events[i-1].Generation] = append(out[events[i-1].Generation], c)
			continue
		}
		opening++
		if c.generation >= events[0].Generation {
			h.t.Error("a call without a lease of a process that knew of the opening")
		}
	}
	if most := herdProcesses*herdGoroutines + breaker.DefaultFailureThreshold; opening > most {
		h.t.Errorf("%d calls before the opening, want at most %d", opening, most)
	}
	return out
}

func (h *herd) finish() {
	h.t.Helper()
	for _, p := range h.processes {
		p.finish()
	}
}

// However many race, an API that is still limited gets one call per cooldown.
func TestHerdMakesOneCallPerCooldown(t *testing.T) {
	t.Parallel()
	n := 20
	if long {
		n = 100
	}
	h := startHerd(t, 100*time.Millisecond, 10*time.Second)
	h.cooldowns(n)
	h.finish()
	generations := h.halfOpens()
	probes := h.probes()
	total := 0
	for i, g := range generations {
		total += len(probes[g])
		// The last one may have been entered by somebody who was told to stop.
		if len(probes[g]) != 1 && (i < len(generations)-1 || len(probes[g]) > 1) {
			t.Errorf("%d calls in HALF_OPEN %d, want 1", len(probes[g]), g)
		}
	}
	if s := h.status(); s.Probes != total {
		t.Errorf("the API got %d probes, the breaker counts %d failed ones", total, s.Probes)
	}
	t.Logf("%d cooldowns, %d calls after the opening", len(generations), total)
}

// One prober after the other stands still for longer than its lease, or dies, at each
// point of a probe. Then the lease ends and another process probes in its place. What
// is guaranteed, and what is not:
//   - No two leases overlap, so that nobody makes a call while another one's lease
//     lasts. An API that is limited gets one call for each lease at most.
//   - A prober that stood still before its call finds on waking that its lease has
//     ended and makes none: the API gets one call in this cooldown, the successor's.
//   - One that stood still with its call at the API has made it: the API gets two in
//     this cooldown, the second after the first one's lease.
//   - What it reports after its lease changes no state and no time.
//
// Who stands still in the microseconds between its look at the clock and its first
// byte to the API calls when it wakes; no breaker can take that back.
func TestHerdWhileProbersVanish(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := 4 // each point once
			if long {
				n = 100
			}
			h := startHerd(t, 100*time.Millisecond, lease)
			h.cooldowns(5)
			points := []string{pointAsked, pointGranted, pointCalled, pointAnswered}
			for i := range n {
				h.vanish(points[i%len(points)], how, lease)
			}
			h.cooldowns(5)
			h.finish()
			h.checkLeases(n / len(points) * 2)
		})
	}
}

// vanish makes the next prober vanish at a point, and come back after its lease.
func (h *herd) vanish(point, how string, lease time.Duration) {
	h.t.Helper()
	ctx := context.Background()
	if point == pointCalled {
		h.order.Store(&how)
	} else if err := h.rdb.Set(ctx, orderKey(h.settings.Destination), point+" "+how, 0).Err(); err != nil {
		h.t.Fatal(err)
	}
	pid := 0
	redistest.Await(h.t, 2*time.Minute, "a prober vanishes when "+point, func() bool {
		select {
		case pid = <-h.vanished:
		default:
			pid, _ = h.rdb.RPop(ctx, vanishedKey(h.settings.Destination)).Int()
		}
		return pid != 0
	})
	i := slices.IndexFunc(h.processes, func(p *process) bool { return p.cmd.Process.Pid == pid })
	if i < 0 {
		h.t.Fatalf("process %d is none of ours", pid)
	}
	if how == "kill" {
		h.processes[i].died()
		h.cooldowns(1)
		h.processes[i] = startMember(h.t, h.settings)
		return
	}
	before := h.status()
	<-time.After(lease + 50*time.Millisecond) // the time that it is away
	h.cooldowns(max(0, before.Probes+1-h.status().Probes))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		h.t.Fatal(err)
	}
	h.cooldowns(1) // it does what it does before the next one vanishes
}

// checkLeases checks that no call was made while another one's lease lasted, and that
// only those cooldowns saw a second call whose first prober vanished after its own.
func (h *herd) checkLeases(twice int) {
	h.t.Helper()
	generations := h.halfOpens()
	probes := h.probes()
	seconds := 0
	for i, g := range generations {
		calls := probes[g]
		switch len(calls) {
		case 1:
		case 2:
			seconds++
			if first, second := calls[0], calls[1]; second.at.Before(first.until) {
				h.t.Errorf("HALF_OPEN %d: process %d called %s before the end of the lease of process %d", g, second.pid, first.until.Sub(second.at), first.pid)
			}
		case 0:
			if i < len(generations)-1 {
				h.t.Errorf("no call in HALF_OPEN %d, which ended", g)
			}
		default:
			h.t.Errorf("%d calls in HALF_OPEN %d", len(calls), g)
		}
		for _, c := range calls {
			if c.at.After(c.until) {
				h.t.Errorf("HALF_OPEN %d: process %d called %s after the end of its lease", g, c.pid, c.at.Sub(c.until))
			}
		}
	}
	if seconds != twice {
		h.t.Errorf("%d cooldowns saw two calls, want %d: those whose prober vanished with its call made", seconds, twice)
	}
	h.t.Logf("%d cooldowns, %d of them with a second call", len(generations), seconds)
}
