package publisher_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// turns records the keys of calls in their order.
type turns struct {
	mu    sync.Mutex
	calls []string // "<key>" or "<key> <payload>"
}

func (c *turns) call(_ context.Context, j *jobs.Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, j.Key+" "+string(j.Payload))
	return nil
}

func (c *turns) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// first is the index of the first call of a key.
func (c *turns) first(key string) int {
	return slices.IndexFunc(c.all(), func(call string) bool { return strings.HasPrefix(call, key+" ") })
}

// of counts the calls of a key among the first n.
func (c *turns) of(key string, n int) (count int) {
	for _, call := range c.all()[:n] {
		if strings.HasPrefix(call, key+" ") {
			count++
		}
	}
	return count
}

// limited is a declared limit of so many calls a second.
func limited(calls int) publisher.HandleOption {
	return publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: calls, Per: time.Second}}})
}

// A flood of one key delays the job of another by a few calls, and each key's own order stays; so
// it is by KEY_BY, for jobs without a key, and where no limit but a slow API makes calls scarce.
func TestAQuietKeyHasItsTurn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]publisher.HandleOption{
		"rate":   {limited(100), publisher.Concurrency(1)},
		"key by": {limited(100), publisher.Concurrency(1), publisher.KeyBy(func(j *jobs.Job) (string, error) { return j.Key + "!", nil })},
		"slow":   {publisher.Concurrency(2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			c := &turns{}
			b.enqueueMany(1, jobs.Key("first")) // the script is loaded: chunks of the flood keep their order
			b.enqueueMany(400, jobs.Key("flood"))
			call := c.call
			if name == "slow" {
				call = func(ctx context.Context, j *jobs.Job) error {
					<-time.After(20 * time.Millisecond)
					return c.call(ctx, j)
				}
			}
			b.run(b.options(), call, opts...)
			redistest.Eventually(t, "calls are scarce", func() bool { return len(c.all()) > 80 })
			b.enqueueMany(1, jobs.Key("quiet"))
			b.enqueueMany(1)
			redistest.Eventually(t, "both are called", func() bool { return c.first("quiet") > 0 && c.first("") > 0 })
			if n := len(c.all()); n > 200 {
				t.Errorf("called after %d of 400 jobs of the flood", n)
			}
			redistest.Eventually(t, "all are called", func() bool { return len(c.all()) == 403 })
			next := 0
			for _, call := range c.all() {
				if n := 0; strings.HasPrefix(call, "flood") {
					if _, err := fmt.Sscanf(call, "flood %d", &n); err != nil || n != next && name != "slow" {
						t.Fatalf("job %d of the flood is call %q: %v", next, call, err)
					}
					next++
				}
			}
			redistest.Eventually(t, "nothing is left", func() bool { return b.leftovers() == "" })
		})
	}
}

// Keys share calls by their weights, and by what their jobs cost.
func TestWeightsAndCosts(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := &turns{}
	b.enqueueMany(150, jobs.Key("b"))
	b.enqueueMany(150, jobs.Key("a"))
	b.enqueueMany(150, jobs.Key("heavy"))
	b.enqueueMany(50, jobs.Key("dear"), jobs.Cost(4))
	// With one slot calls are scarce also where the machine is slower than the limit.
	b.run(b.options(), c.call, limited(100), publisher.Concurrency(1), publisher.Turns(true, map[string]float64{"heavy": 3}))
	const n = 160
	redistest.Eventually(t, "some are called in turn", func() bool { at := c.first("heavy"); return at >= 0 && len(c.all()) >= at+n })
	before, all := c.first("heavy"), c.first("heavy")+n
	of := func(key string) int { return c.of(key, all) - c.of(key, before) }
	if a, heavy, dear := of("a"), of("heavy"), of("dear"); heavy < 3*a-10 || heavy > 3*a+10 || dear < a/4-3 || dear > a/4+3 || a < 20 {
		t.Errorf("calls: a %d, of weight 3 %d, of cost 4 %d", a, heavy, dear)
	}
}

// Without turns jobs are first in, first out.
func TestNoTurns(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := &turns{}
	b.enqueueMany(100, jobs.Key("flood"))
	b.enqueueMany(1, jobs.Key("quiet"))
	b.run(b.options(), c.call, limited(200), publisher.Turns(false, nil), publisher.Concurrency(1))
	redistest.Eventually(t, "all are called", func() bool { return len(c.all()) == 101 })
	if at := c.first("quiet"); at != 100 {
		t.Errorf("the last job is call %d", at+1)
	}
}
