package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// used is how much of the declared limit is used.
func (b *fixture) used(name string) int {
	b.t.Helper()
	read, err := breaker.Namespace("").ReadOne(context.Background(), b.rdb, breaker.Query{Limits: true}, name)
	l := read.Limits
	if err != nil || len(l.Declared) != 1 {
		b.t.Fatalf("limits of %s: %+v, %v", name, l, err)
	}
	return l.Declared[0].Used
}

// What a call has really cost corrects what it took, and a call that was not made takes nothing.
func TestHandlersSayTheTrueCost(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	answers := map[string]func(*jobs.Job) error{
		"more":           func(j *jobs.Job) error { j.Cost = 300; return nil },
		"less":           func(j *jobs.Job) error { j.Cost = 2; return nil },
		"with a failure": func(j *jobs.Job) error { j.Cost = 5; return jobs.Discard(errors.New("no")) },
		"as before":      func(*jobs.Job) error { return nil },
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
	of, total := 0, 0
	for _, step := range []struct {
		name, result string
		cost         int
	}{
		{"more", publisher.Completed, 300},
		{"less", publisher.Completed, 2},
		{"with a failure", publisher.FailedFinal, 5},
		{"as before", publisher.Completed, 40},
	} {
		for _, key := range []string{"", "k"} {
			handler <- answers[step.name]
			job := b.enqueue(jobs.Cost(40), jobs.Key(key))
			e := b.want(step.result)
			if e.Job.ID != job.ID || e.Job.Cost != 40 {
				t.Fatalf("%s: event of %+v", step.name, e.Job)
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
