package publisher_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// reserveAPI notes when calls of each priority begin.
type reserveAPI struct {
	mu       sync.Mutex
	began    map[jobs.Priority][]time.Time
	low, top int // calls in flight of low: now, and at most
}

func (a *reserveAPI) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (a *reserveAPI) note(priority jobs.Priority) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began[priority] = append(a.began[priority], time.Now())
	if priority == jobs.PriorityLow {
		a.low++
		a.top = max(a.top, a.low)
	}
}

func (a *reserveAPI) ended(priority jobs.Priority) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if priority == jobs.PriorityLow {
		a.low--
	}
}

func (a *reserveAPI) calls(priority jobs.Priority) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.began[priority])
}

// awaitCalls waits until so many calls of a priority have begun, and returns when.
func (a *reserveAPI) awaitCalls(t *testing.T, priority jobs.Priority, n int) []time.Time {
	t.Helper()
	redistest.Await(t, 30*time.Second, fmt.Sprintf("%d calls of priority %s", n, priority), func() bool { return len(a.calls(priority)) >= n })
	return a.calls(priority)
}

// reserving runs three workers that reserve a fifth for high, with a backlog of low.
func reserving(t *testing.T, o breaker.Options, took time.Duration, low int) (*fixture, *reserveAPI) {
	t.Helper()
	f, api := newFixture(t), &reserveAPI{began: map[jobs.Priority][]time.Time{}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	f.enqueueMany(low, jobs.Prioritize(jobs.PriorityLow))
	for range 3 {
		po := f.options()
		po.Observers, po.Logger = nil, slog.New(slog.DiscardHandler)
		f.run(po, func(ctx context.Context, j *jobs.Job) error {
			api.note(j.Priority)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
			if err != nil {
				return err
			}
			res, err := server.Client().Do(req)
			if err != nil {
				return err
			}
			<-time.After(took)
			api.ended(j.Priority)
			return res.Body.Close()
		}, publisher.Concurrency(10), publisher.Breaker(o), publisher.Reserve(map[jobs.Priority]int{jobs.PriorityHigh: 20}))
	}
	return f, api
}

// urgent enqueues jobs of priority high, and returns when the last of them began.
func (a *reserveAPI) urgent(f *fixture, n int) time.Time {
	f.t.Helper()
	var last time.Time
	for range n {
		before := len(a.calls(jobs.PriorityHigh))
		f.enqueue(jobs.Prioritize(jobs.PriorityHigh))
		last = a.awaitCalls(f.t, jobs.PriorityHigh, before+1)[before]
	}
	return last
}

// Jobs of low leave a fifth of a window to those of high, which start at once, until its last tenth.
func TestReserveOfAWindow(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const window = 10 * time.Second
	rate := breaker.Rates{{Calls: 200, Per: window, Zone: "UTC"}}
	redistest.Await(t, 2*window, "the first seconds of a window", func() bool { return time.Now().UnixMilli()%window.Milliseconds() < 2000 })
	begin := time.Now().Truncate(window)
	f, api := reserving(t, breaker.Options{Rate: rate}, 0, 400)
	api.awaitCalls(t, jobs.PriorityLow, 160)
	urgent := api.urgent(f, 3)
	low := api.awaitCalls(t, jobs.PriorityLow, 197)
	opens := begin.Add(window - window/10)
	if low[159].After(opens) || low[160].Before(opens) || low[196].After(opens.Add(window/10)) {
		t.Errorf("low calls 160, 161 and 197 began %v, %v and %v after the window, want 160 until %v and 197 until its end",
			low[159].Sub(begin), low[160].Sub(begin), low[196].Sub(begin), opens.Sub(begin))
	}
	next := api.awaitCalls(t, jobs.PriorityLow, 198)[197]
	if urgent.After(opens) {
		t.Errorf("the high ones began %v after the window, want before the low ones go on", urgent.Sub(begin))
	}
	if next.Before(begin.Add(window)) {
		t.Errorf("the 201st call began %v after the window", next.Sub(begin))
	}
}

// Jobs of low leave a fifth of the calls in flight to those of high.
func TestReserveOfCallsInFlight(t *testing.T) {
	t.Parallel()
	f, api := reserving(t, breaker.Options{FleetConcurrency: 10}, 500*time.Millisecond, 60)
	api.awaitCalls(t, jobs.PriorityLow, 8)
	api.urgent(f, 2)
	api.awaitCalls(t, jobs.PriorityLow, 40)
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.top != 8 {
		t.Errorf("%d calls of low were in flight, want 8", api.top)
	}
}

// A burst, too: the keys' limits as well as the destination's.
func TestReserveOfABurst(t *testing.T) {
	t.Parallel()
	burst := breaker.Rates{{Calls: 10, Per: time.Hour, Burst: 10}}
	f, api := reserving(t, breaker.Options{Rate: burst, KeyRate: burst}, 0, 20)
	api.awaitCalls(t, jobs.PriorityLow, 8)
	f.enqueue(jobs.Prioritize(jobs.PriorityHigh), jobs.Key("k"))
	api.awaitCalls(t, jobs.PriorityHigh, 1)
	api.urgent(f, 1)
	if n := len(api.calls(jobs.PriorityLow)); n != 8 {
		t.Errorf("%d calls of low, want 8", n)
	}
}

// A job whose time comes moves to its queue while the others wait for the rate.
func TestDueJobsMoveAtARate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueueMany(100)
	due := f.enqueue(jobs.Prioritize(jobs.PriorityHigh), jobs.Delay(300*time.Millisecond))
	var mu sync.Mutex
	var called []string
	f.run(f.options(), func(_ context.Context, j *jobs.Job) error {
		mu.Lock()
		defer mu.Unlock()
		called = append(called, j.ID)
		return nil
	}, publisher.Concurrency(5), publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: 20, Per: time.Second}}}))
	place := -1
	redistest.Await(t, 30*time.Second, "the call of the due job", func() bool {
		mu.Lock()
		defer mu.Unlock()
		place = slices.Index(called, due.ID)
		return place >= 0
	})
	if place > 60 {
		t.Errorf("%d jobs of lower priority were called before it", place)
	}
}
