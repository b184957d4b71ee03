package bench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// peerFigures are what one round has shown.
type peerFigures struct {
	ns       float64 // of the clock, per call of all goroutines together
	allocs   float64 // per call
	commands float64 // of Redis, those inside scripts included, per call
	perSec   float64
	slowest  time.Duration // call; 0 unless timed
}

// round lets goroutines call for a while, one after the other as fast as they can,
// and counts the calls that ended within it.
func round(t testing.TB, server *redistest.Server, c peer, goroutines int, d time.Duration, call func() error, timed bool) (f peerFigures) {
	t.Helper()
	ctx := t.Context()
	all, end, err := c.start(ctx, server.Client(t), goroutines)
	check(t, err)
	defer func() { check(t, end()) }()
	for _, g := range all { // opens connections and loads scripts
		check(t, g(ctx, nothing))
	}

	var over atomic.Bool
	tallies := make([]callTally, goroutines)
	var ready, ended sync.WaitGroup
	begin, one := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(one) })
	for i, g := range all {
		ready.Add(1)
		ended.Go(func() {
			ready.Done()
			<-begin
			tallies[i].run(ctx, g, call, &over, timed, first)
		})
	}
	ready.Wait()
	var before, after runtime.MemStats
	server.ResetStats(t)
	runtime.GC()
	runtime.ReadMemStats(&before)
	started := time.Now()
	close(begin)
	pause(ctx, d)
	<-one // a busy machine may not end a call in so short a time
	over.Store(true)
	took := time.Since(started)
	ended.Wait()
	runtime.ReadMemStats(&after)

	var calls, late int
	var errs []error
	for i := range tallies {
		calls += tallies[i].calls
		late += tallies[i].late
		f.slowest = max(f.slowest, tallies[i].slowest)
		errs = append(errs, tallies[i].err)
	}
	check(t, errors.Join(errs...))
	if calls == 0 {
		t.Fatalf("%s: no call ended within %s", c.name, d)
	}
	f.ns = float64(took.Nanoseconds()) / float64(calls)
	f.perSec = float64(calls) / took.Seconds()
	f.allocs = float64(after.Mallocs-before.Mallocs) / float64(calls+late)
	f.commands = float64(commandsOf(t, server)) / float64(calls+late)
	return f
}

// callTally is what one goroutine has counted. The padding keeps it off the cache lines
// of the others.
type callTally struct {
	calls   int
	late    int // calls that ended after the round
	slowest time.Duration
	err     error
	_       [64]byte
}

func (t *callTally) run(ctx context.Context, g guarded, call func() error, over *atomic.Bool, timed bool, first func()) {
	var calls int
	defer func() { t.calls = calls }()
	defer first()
	for !over.Load() {
		var started time.Time
		if timed {
			started = time.Now()
		}
		if err := g(ctx, call); err != nil {
			t.err = err
			return
		}
		if timed {
			t.slowest = max(t.slowest, time.Since(started))
		}
		if over.Load() {
			t.late = 1
			return
		}
		if calls++; calls == 1 {
			first()
		}
	}
}
