package publisher_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// acted is what the client said of one job.
type acted struct {
	id     string
	result jobs.ActResult
	// called says how often the job had been called when the answer came.
	called int
}

// raceWithStart enqueues n jobs and does something to each of them at about the
// time of its start.
func (b *fixture) raceWithStart(n int, a jobs.Action, calls *tally) []acted {
	b.t.Helper()
	const racers = 8
	out := make([]acted, n)
	var wg sync.WaitGroup
	for r := range racers {
		wg.Go(func() {
			ctx := context.Background()
			for i := r; i < n; i += racers {
				j, err := b.client.Enqueue(ctx, jobs.New(b.dest, i))
				if err != nil {
					b.t.Error(err)
					return
				}
				<-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond)
				results, err := b.client.Act(ctx, a, []string{j.ID}, jobs.By("racer"))
				if err != nil {
					b.t.Error(err)
					return
				}
				out[i] = acted{j.ID, results[0], calls.of(j.ID)}
			}
		})
	}
	wg.Wait()
	return out
}

// settled waits until no job is on its way.
func (b *fixture) settled(as []acted) {
	b.t.Helper()
	for _, a := range as {
		redistest.Eventually(b.t, "job "+a.id+" has settled", func() bool {
			s := b.record(a.id).Status
			return s.Final() || s == jobs.Paused
		})
	}
}

// 1,000 cancels at about the time of the start: each job is cancelled or completed,
// and one whose cancel was acknowledged before it had started is never called.
func TestCancelRacesWithStart(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := newFixture(t)
	var calls, accepted tally
	handler := func(ctx context.Context, j *jobs.Job) error {
		calls.add(j.ID)
		select {
		case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
			accepted.add(j.ID)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o := b.options()
	o.Observers = nil
	b.run(o, handler, publisher.Concurrency(5))
	b.run(o, handler, publisher.Concurrency(5))
	as := b.raceWithStart(n, jobs.ActionCancel, &calls)
	b.settled(as)
	var done, asked, cut, late int
	for _, a := range as {
		j := b.record(a.id)
		completed := j.Status == jobs.Completed
		if j.Status != jobs.Cancelled && !completed || completed != (accepted.of(a.id) == 1) || calls.of(a.id) > 1 {
			t.Errorf("job %s is %s after %d calls, %d accepted", a.id, j.Status, calls.of(a.id), accepted.of(a.id))
		}
		if j.Attempt != 0 || j.RescheduleCount != 0 || j.Crashes != 0 {
			t.Errorf("job %s: attempt %d, %d reschedules, crashes %d", a.id, j.Attempt, j.RescheduleCount, j.Crashes)
		}
		switch {
		case a.result.Done:
			done++
			if completed || calls.of(a.id) != 0 {
				t.Errorf("job %s was %s, its cancel was acknowledged, and it is %s after %d calls", a.id, a.result.Status, j.Status, calls.of(a.id))
			}
		case a.result.Asked:
			asked++
			if !completed {
				cut++
			}
			if a.result.Status != jobs.Running {
				t.Errorf("job %s was asked while %s", a.id, a.result.Status)
			}
		default:
			late++
			if refused, ok := errors.AsType[*jobs.StatusError](a.result.Err); !ok || refused.Status != jobs.Completed || !completed {
				t.Errorf("job %s is %s; cancel said %v", a.id, j.Status, a.result.Err)
			}
		}
	}
	t.Logf("%d cancelled before their start, %d asked while running (%d cut), %d too late", done, asked, cut, late)
	if done == 0 || asked == 0 || late == 0 {
		t.Errorf("no race: %d, %d, %d", done, asked, late)
	}
	b.mustBeEmpty()
}

// The same with pauses; and every job that is paused runs when it is resumed.
func TestPauseRacesWithStart(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := newFixture(t)
	var calls, accepted tally
	handler := func(_ context.Context, j *jobs.Job) error {
		n := calls.add(j.ID)
		<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
		if n == 1 && rand.IntN(2) == 0 {
			return jobs.Reschedule(0) // a call that does not finish the job
		}
		accepted.add(j.ID)
		return nil
	}
	o := b.options()
	o.Observers = nil
	b.run(o, handler, publisher.Concurrency(5))
	b.run(o, handler, publisher.Concurrency(5))
	as := b.raceWithStart(n, jobs.ActionPause, &calls)
	b.settled(as)
	var done, asked, held, late int
	var paused []string
	for _, a := range as {
		j := b.record(a.id)
		completed := j.Status == jobs.Completed
		if j.Status != jobs.Paused && !completed || completed != (accepted.of(a.id) == 1) {
			t.Errorf("job %s is %s, %d calls, %d accepted", a.id, j.Status, calls.of(a.id), accepted.of(a.id))
		}
		if j.Status == jobs.Paused {
			paused = append(paused, a.id)
		}
		switch {
		case a.result.Done:
			done++
			// The answer travels while others call: a call counted by then had
			// begun, and ended, before the pause.
			if completed || calls.of(a.id) != j.RescheduleCount {
				t.Errorf("job %s was %s, its pause was acknowledged, and it is %s after %d calls and %d reschedules",
					a.id, a.result.Status, j.Status, calls.of(a.id), j.RescheduleCount)
			}
		case a.result.Asked:
			asked++
			if !completed {
				held++
			}
		default:
			late++
			if refused, ok := errors.AsType[*jobs.StatusError](a.result.Err); !ok || refused.Status != jobs.Completed || !completed {
				t.Errorf("job %s is %s; pause said %v", a.id, j.Status, a.result.Err)
			}
		}
	}
	t.Logf("%d paused before a start, %d asked while running (%d held by it), %d too late", done, asked, held, late)
	if done == 0 || asked == 0 || held == 0 || late == 0 {
		t.Errorf("no race: %d, %d, %d, %d", done, asked, held, late)
	}
	before := calls.total()
	sum, err := b.client.ActWhere(context.Background(), jobs.ActionResume, jobs.Filter{Destination: b.dest, Statuses: []jobs.Status{jobs.Paused}})
	if err != nil || sum.Done != len(paused) {
		t.Fatalf("resumed %+v of %d, %v", sum, len(paused), err)
	}
	for _, id := range paused {
		b.waitStatus(id, jobs.Completed)
		if accepted.of(id) != 1 {
			t.Errorf("job %s was accepted %d times", id, accepted.of(id))
		}
	}
	if more := calls.total() - before; more < len(paused) {
		t.Errorf("%d calls for %d resumed jobs", more, len(paused))
	}
	b.mustBeEmpty()
}
