package publisher_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// callLog counts calls as the API sees them.
type callLog struct {
	mu             sync.Mutex
	running, most  int
	ofKey, mostKey map[string]int
	total          int
	begun          chan struct{}
	rescheduled    int
	attempts       int
}

func (l *callLog) call(ctx context.Context, j *jobs.Job) error {
	l.mu.Lock()
	l.running, l.total, l.ofKey[j.Key] = l.running+1, l.total+1, l.ofKey[j.Key]+1
	l.most, l.mostKey[j.Key] = max(l.most, l.running), max(l.mostKey[j.Key], l.ofKey[j.Key])
	l.attempts, l.rescheduled = l.attempts+j.Attempt, l.rescheduled+j.RescheduleCount
	l.mu.Unlock()
	select {
	case l.begun <- struct{}{}:
	default:
	}
	select {
	case <-time.After(20 * time.Millisecond): // the call's length
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.ofKey[j.Key] = l.running-1, l.ofKey[j.Key]-1
	return nil
}

// Whatever a worker loses of Redis for a moment, there are never more calls than declared limits allow: none is made
// without Redis's permission. No job fails or is counted as rescheduled for that.
func TestDeclaredLimitsHoldThroughBlips(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const slots, calls = 3, 60
	for _, limit := range []struct {
		name string
		o    breaker.Options
		most int
	}{
		{"concurrency", breaker.Options{FleetConcurrency: slots, KeyConcurrency: 1}, 1 << 30},
		{"rate", breaker.Options{Rate: breaker.Rates{{Calls: calls, Per: 30 * 24 * time.Hour, Burst: calls}}}, calls},
		{"named", breaker.Options{Limits: []breaker.NamedLimit{{Name: "shared", Concurrency: slots}}}, 1 << 30},
	} {
		for _, fault := range []string{"replies lost", "connections broken", "connections killed", "killed", "mixed"} {
			t.Run(limit.name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				clock, option := redistest.WithClock(t)
				s := redistest.Start(t, redistest.WithAOF(), option)
				b := fixtureOn(t, s)
				const n = 1000
				for i := range n / 250 {
					b.enqueueMany(125, jobs.Key(fmt.Sprint("k", i)))
				}
				b.enqueueMany(n / 2)
				log := &callLog{ofKey: map[string]int{}, mostKey: map[string]int{}, begun: make(chan struct{}, 1)}
				p := redistest.NewLossy(t, s.Addr())
				blip := redistest.Blips(t, s, p, clock)[fault]
				for range 2 {
					worker := *b
					worker.rdb = p.Client(t)
					o := b.options()
					o.Observers = nil
					limits := make([]publisher.NamedLimit, len(limit.o.Limits))
					for i, l := range limit.o.Limits {
						limits[i].NamedLimit = l
					}
					declared := limit.o
					declared.Limits, declared.Timeout = nil, 500*time.Millisecond
					worker.run(o, log.call, publisher.Concurrency(10), publisher.Breaker(declared), publisher.Limits(limits...))
				}
				total := func() int {
					log.mu.Lock()
					defer log.mu.Unlock()
					return log.total
				}
				if limit.name == "rate" {
					redistest.Eventually(t, "the rate is used up", func() bool { return total() >= limit.most })
				}
				for range blips {
					select {
					case <-log.begun:
					case <-time.After(time.Second): // the rate is used up
					}
					blip()
				}
				if limit.name != "rate" {
					last := total()
					redistest.Eventually(t, "calls after the last blip", func() bool { return total() >= last+2*slots })
				}
				log.mu.Lock()
				defer log.mu.Unlock()
				t.Logf("%d calls, at most %d at once", log.total, log.most)
				if log.total > limit.most {
					t.Errorf("%d calls, of %d", log.total, limit.most)
				}
				if limit.name != "rate" && log.most > slots {
					t.Errorf("%d calls at once, of %d", log.most, slots)
				}
				for key, most := range log.mostKey {
					if limit.o.KeyConcurrency > 0 && key != "" && most > 1 {
						t.Errorf("%d calls of key %s at once", most, key)
					}
				}
				if log.attempts+log.rescheduled > 0 {
					t.Errorf("jobs count %d attempts and %d reschedules", log.attempts, log.rescheduled)
				}
			})
		}
	}
}

// With KEY_CONCURRENCY=1 the jobs of a key are called one at a time, also while one reply of Redis in a hundred is lost. They
// are called in the order of their enqueues. A job whose fetch lost its reply may come later: the worker fetches it again.
func TestKeysKeepTheirOrderThroughLostReplies(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const keys, each = 60, 15
	s := redistest.Start(t)
	b := fixtureOn(t, s)
	p := redistest.NewLossy(t, s.Addr())
	specs := make([]*jobs.Spec, keys*each)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i/keys, jobs.Key(fmt.Sprint("k", i%keys)))
	}
	ids := b.enqueueAll(specs)
	var mu sync.Mutex
	called, running := map[string][]int{}, map[string]int{}
	for range 2 {
		worker := *b
		worker.rdb = p.Client(t)
		o := b.options()
		o.Observers = nil
		worker.run(o, func(_ context.Context, j *jobs.Job) error {
			n, err := strconv.Atoi(string(j.Payload))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			called[j.Key] = append(called[j.Key], n)
			if running[j.Key]++; running[j.Key] > 1 {
				t.Errorf("%d calls of key %s at once", running[j.Key], j.Key)
			}
			mu.Unlock()
			<-time.After(2 * time.Millisecond) // the call's length
			mu.Lock()
			defer mu.Unlock()
			running[j.Key]--
			return nil
		}, publisher.Concurrency(10), publisher.Breaker(breaker.Options{KeyConcurrency: 1, Timeout: 500 * time.Millisecond}))
	}
	p.Lose(0.01)
	defer p.Lose(0)
	for _, id := range ids {
		b.waitStatus(id, jobs.Completed)
	}
	mu.Lock()
	defer mu.Unlock()
	overtaken := 0
	for _, order := range called {
		for i := 1; i < len(order); i++ {
			if order[i] < order[i-1] {
				overtaken++
			}
		}
	}
	t.Logf("%d replies lost, %d jobs overtaken", p.Lost(), overtaken)
	if overtaken > p.Lost()/2 {
		t.Errorf("%d jobs were overtaken by later ones of their keys", overtaken)
	}
}
