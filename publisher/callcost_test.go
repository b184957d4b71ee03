package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// points is an API that counts points in a bucket, and refuses a call that costs more than is left.
type points struct {
	mu             sync.Mutex
	capacity, rate float64
	left           float64
	at             time.Time
	sum, refused   int
}

func (p *points) call(cost int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.at.IsZero() {
		p.left = p.capacity
	} else {
		p.left = min(p.capacity, p.left+p.rate*now.Sub(p.at).Seconds())
	}
	p.at = now
	if float64(cost) > p.left {
		p.refused++
		return jobs.RateLimited(0)
	}
	p.left -= float64(cost)
	p.sum += cost
	return nil
}

// Two workers, and jobs of any cost up to the whole bucket: no call is refused, each job is called
// once, and the points are used up as fast as they may be.
func TestCallsTakeTheirCost(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for name, row := range map[string]struct {
		keys    []string
		keyRate breaker.Rates
	}{
		"of the destination":     {keys: []string{""}},
		"of keys":                {keys: []string{"", "a", "b"}, keyRate: breaker.Rates{{Calls: 400, Per: time.Second, Burst: 900}}},
		"of keys, which hold up": {keys: []string{"a", "b"}, keyRate: breaker.Rates{{Calls: 300, Per: time.Second, Burst: 900}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			// The API has room for calls that arrive later than they were granted.
			api := &points{capacity: 3000, rate: 500}
			var total int
			var ids []string
			costs := []int{500, 1, 1, 300, 20, 1, 120, 1}
			for i := range 32 {
				opts := []jobs.Option{jobs.Cost(costs[i%len(costs)]), jobs.Prioritize([]jobs.Priority{jobs.PriorityDefault, jobs.PriorityHigh}[rand.IntN(2)])}
				if key := row.keys[i%len(row.keys)]; key != "" {
					opts = append(opts, jobs.Key(key))
				}
				total += costs[i%len(costs)]
				ids = append(ids, b.enqueue(opts...).ID)
			}
			rules := publisher.Breaker(breaker.Options{
				Rate: breaker.Rates{{Calls: 500, Per: time.Second, Burst: 1000}}, KeyRate: row.keyRate, FailureThreshold: 1, Cooldown: time.Minute,
			})
			started := time.Now()
			for range 2 {
				b.run(b.options(), func(_ context.Context, j *jobs.Job) error { return api.call(j.Cost) }, publisher.Concurrency(4), rules)
			}
			for range ids {
				if e := b.event(); e.Result != publisher.Completed {
					t.Fatalf("job %s of cost %d: %s (%v)", e.Job.ID, e.Job.Cost, e.Result, e.Err)
				}
			}
			took := time.Since(started)
			ideal := time.Duration(float64(total-1000) / 500 * float64(time.Second))
			t.Logf("%d points in %v, ideal %v: %.3f", total, took.Round(time.Millisecond), ideal, took.Seconds()/ideal.Seconds())
			if api.refused > 0 || api.sum != total {
				t.Errorf("%d calls were refused; %d points of %d", api.refused, api.sum, total)
			}
			if took < ideal {
				t.Errorf("%d points took %v, want at least %v", total, took, ideal)
			}
			for _, id := range ids {
				if j := b.get(id); j.Attempt+j.RescheduleCount > 0 {
					t.Errorf("job %s of cost %d: %d retries, %d reschedules", id, j.Cost, j.Attempt, j.RescheduleCount)
				}
			}
		})
	}
}

// used is how much of the declared limit is used.
func (b *fixture) used(name string) int {
	b.t.Helper()
	l, err := breaker.Namespace("").Limits(context.Background(), b.rdb, name)
	if err != nil || len(l.Declared) != 1 {
		b.t.Fatalf("limits of %s: %+v, %v", name, l, err)
	}
	return l.Declared[0].Used
}

// counted is an error of a user's own that wraps a cost.
type counted struct{ cost jobs.Cost }

func (c counted) Error() string { return "counted: " + c.cost.Error() }
func (c counted) Unwrap() error { return c.cost }

// What a call has really cost corrects what it took, and a call that was not made takes nothing.
func TestHandlersSayTheTrueCost(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	answers := map[string]func(*jobs.Job) error{
		"more":           func(*jobs.Job) error { return jobs.Cost(300) },
		"less":           func(*jobs.Job) error { return jobs.Cost(2) },
		"the job's":      func(j *jobs.Job) error { j.Cost = 70; return nil },
		"with a failure": func(*jobs.Job) error { return errors.Join(jobs.Discard(errors.New("no")), jobs.Cost(5)) },
		"of an own type": func(*jobs.Job) error { return counted{jobs.Cost(12)} },
		"wrapped":        func(*jobs.Job) error { return fmt.Errorf("done: %w", jobs.Cost(7)) },
		"joined":         func(*jobs.Job) error { return fmt.Errorf("done: %w", errors.Join(errors.Join(jobs.Cost(8)), nil)) },
		"in a failure":   func(*jobs.Job) error { return jobs.Discard(jobs.Cost(9)) },
		"joined deeply": func(*jobs.Job) error {
			return errors.Join(fmt.Errorf("metered: %w", jobs.Cost(11)), fmt.Errorf("sent: %w", jobs.Discard(errors.New("no"))))
		},
		"as before": func(*jobs.Job) error { return nil },
	}
	handler := make(chan func(*jobs.Job) error, 1)
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		select {
		case answer := <-handler:
			return answer(j)
		case <-ctx.Done():
			return ctx.Err()
		}
	},
		publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: 1000, Per: 300 * time.Hour, Burst: 1000}}, KeyRate: breaker.Rates{{Calls: 900, Per: 300 * time.Hour, Burst: 900}}}))
	failures := map[string]string{"with a failure": "no", "in a failure": "the call cost 9", "joined deeply": "sent: no"}
	of, total := 0, 0
	for _, step := range []struct {
		name, result string
		cost         int
	}{
		{"more", publisher.Completed, 300},
		{"less", publisher.Completed, 2},
		{"the job's", publisher.Completed, 70},
		{"with a failure", publisher.FailedFinal, 5},
		{"wrapped", publisher.Completed, 7},
		{"of an own type", publisher.Completed, 12},
		{"joined", publisher.Completed, 8},
		{"in a failure", publisher.FailedFinal, 9},
		{"joined deeply", publisher.FailedFinal, 11},
		{"as before", publisher.Completed, 40},
	} {
		for _, key := range []string{"", "k"} {
			handler <- answers[step.name]
			job := b.enqueue(jobs.Cost(40), jobs.Key(key))
			e := b.want(step.result)
			if e.Job.ID != job.ID || e.Job.Cost != 40 {
				t.Fatalf("%s: event of %+v", step.name, e.Job)
			}
			if want := failures[step.name]; step.result == publisher.FailedFinal && (e.Err == nil || e.Err.Error() != want) {
				t.Errorf("%s: error %v, want %q", step.name, e.Err, want)
			}
			if total += step.cost; key != "" {
				of += step.cost
				if got := b.used(b.dest + "/k"); got != of {
					t.Errorf("%s: %d of the key's limit are used, want %d", step.name, got, of)
				}
			}
			if got := b.used(b.dest); got != total {
				t.Errorf("%s, key %q: %d are used, want %d", step.name, key, got, total)
			}
		}
	}
	go func() {
		for { // it may be called again soon
			select {
			case handler <- func(*jobs.Job) error { return jobs.Unreachable(errors.New("no route")) }:
			case <-t.Context().Done():
				return
			}
		}
	}()
	b.enqueue(jobs.Cost(40))
	b.want(publisher.Rescheduled)
	redistest.Eventually(t, "what a call that was not made took is given back", func() bool { return b.used(b.dest) == total })
}

// A job whose cost no window has fails with a sentence that says so; the others go on.
func TestACostThatCanNeverRun(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	large := b.enqueue(jobs.Cost(101))
	ofKey := b.enqueue(jobs.Cost(60), jobs.Key("k"))
	small := b.enqueue(jobs.Cost(100))
	b.run(b.options(), func(context.Context, *jobs.Job) error { return nil },
		publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: 100, Per: time.Second, Burst: 10}}, KeyRate: breaker.Rates{{Calls: 50, Per: time.Second}}}))
	for id, want := range map[string]string{
		large.ID: "a call of cost 101 can never run: the declared limit of " + b.dest + " is 100/1s:10",
		ofKey.ID: "a call of cost 60 can never run: the declared limit of " + b.dest + "/k is 50/1s",
	} {
		want += ": raise the limit or its burst, then: tidegate retry " + id + "; or split the job"
		if j := b.waitStatus(id, jobs.Failed); j.LastError != want || j.Attempt != 0 {
			t.Errorf("the job failed with %q, want %q", j.LastError, want)
		}
	}
	b.waitStatus(small.ID, jobs.Completed)
}
