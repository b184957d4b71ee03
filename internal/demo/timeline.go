package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// timeline watches the workers and prints what happens, a line each. Its methods may be
// called concurrently.
type timeline struct {
	o    Options
	view func() breaker.View

	mu          sync.Mutex
	out         io.Writer
	err         error // the first of writing
	broken      chan struct{}
	calling     int    // calls in flight
	inRow       int    // rate-limited responses since a success
	late        int    // rate-limited responses to calls that had begun before the breaker opened
	open        bool   // printed, until its closing is printed
	probe       string // the job of the latest probe
	completed   int
	failed      int
	reschedules int
	rescheduled map[string]bool // jobs
	done        chan struct{}   // closed when no job is left
}

func newTimeline(o Options, out io.Writer) *timeline {
	return &timeline{
		o: o, out: out, view: func() breaker.View { return breaker.View{} },
		rescheduled: map[string]bool{}, broken: make(chan struct{}), done: make(chan struct{}),
	}
}

// print writes without a time.
func (t *timeline) print(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(fmt.Sprintf(format, args...))
}

// say adds a line.
func (t *timeline) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(format, args...)
}

// add adds a line; t.mu is held.
func (t *timeline) add(format string, args ...any) {
	t.write(time.Now().Format(time.TimeOnly) + "  " + fmt.Sprintf(format, args...) + "\n")
}

func (t *timeline) write(text string) {
	if t.err != nil {
		return
	}
	if _, err := io.WriteString(t.out, text); err != nil {
		t.err = fmt.Errorf("demo: write: %w", err)
		close(t.broken)
	}
}

// end writes a text, after which nothing more is printed, and returns the first error of writing.
func (t *timeline) end(text string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(text)
	t.out = io.Discard
	return t.err
}

// watch makes a handler whose calls are in the timeline.
func (t *timeline) watch(worker int, h publisher.Handler) publisher.Handler {
	return publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		probe := t.callStarts(worker, job.ID)
		err := h.Publish(ctx, job)
		t.callEnds(worker, probe, err)
		return err
	})
}

// callStarts notes a call and reports whether it is the probe.
func (t *timeline) callStarts(worker int, job string) (probe bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calling++
	if t.view().State != breaker.HalfOpen {
		return false
	}
	t.probe = job
	t.addLate()
	t.add("cooldown over: %s sends one call for all, the probe", workerName(worker))
	return true
}

// limited notes a 429, before the breaker counts it.
func (t *timeline) limited(worker int, job string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case job == t.probe:
	case t.open || t.inRow == t.o.Threshold:
		t.late++
	default:
		t.inRow++
		t.add("the API answered 429 to %s", workerName(worker))
	}
}

func (t *timeline) callEnds(worker int, probe bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calling--
	var limited *jobs.RateLimitedError
	switch refused := errors.As(err, &limited); {
	case probe && refused:
		t.add("the API answered 429 to the probe")
	case probe && err == nil:
		t.add("the API accepted the probe")
	case err == nil && !t.open:
		t.inRow, t.late = 0, 0
	case err != nil && !refused:
		t.add("a call of %s failed: %v", workerName(worker), err)
	}
	if t.calling == 0 {
		t.addLate()
	}
}

// addLate prints the calls that had begun before the breaker opened; t.mu is held.
func (t *timeline) addLate() {
	if t.late > 0 && t.open {
		t.add("calls under way when it opened that got 429 too: %d", t.late)
		t.late = 0
	}
}

// transition prints a transition of the breaker.
func (t *timeline) transition(e breaker.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.To == breaker.Open && e.From == breaker.Closed:
		t.open = true
		t.add("%d in a row: breaker OPEN for all %d workers, no calls for %s", e.Failures, t.o.Workers, t.o.Cooldown)
		if t.calling == 0 {
			t.addLate()
		}
	case e.To == breaker.Open:
		t.add("breaker OPEN again for %s", t.o.Cooldown)
	case e.To == breaker.Closed:
		t.open, t.inRow, t.late = false, 0, 0
		t.add("breaker CLOSED, recovered after %s: %d waiting jobs leave", round(e.At.Sub(e.OpenedAt)), t.o.Jobs-t.completed-t.failed)
	}
}

// jobEnded counts what became of a job after a run.
func (t *timeline) jobEnded(e publisher.JobEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Result {
	case publisher.Completed:
		t.completed++
	case publisher.FailedFinal:
		t.failed++
	case publisher.Rescheduled:
		t.reschedules++
		t.rescheduled[e.Job.ID] = true
	}
	if t.completed+t.failed == t.o.Jobs {
		close(t.done)
	}
}

// status prints how far it is.
func (t *timeline) status(calls, wasted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.view()
	state := v.State.String()
	if v.State == breaker.Open {
		state = fmt.Sprintf("OPEN for %.1f s", max(0, time.Until(v.OpenUntil).Seconds()))
	}
	t.add("published %d of %d, calls %d, wasted %d, breaker %s", t.completed, t.o.Jobs, calls, wasted, state)
}

// round shortens a time to a tenth of a second.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
