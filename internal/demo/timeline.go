package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// timeline prints what happens, a line each. Its methods may be called concurrently.
type timeline struct {
	o    Options
	view func() breaker.View

	mu          sync.Mutex
	out         io.Writer
	err         error         // the first of writing
	broken      chan struct{} // closed after it
	ended       int           // jobs
	completed   int
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

// watch returns a handler whose calls are in the timeline: the probe, refused calls, and calls that failed otherwise.
func (t *timeline) watch(worker string, h publisher.Handler) publisher.Handler {
	return publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		probe := t.view().State == breaker.HalfOpen
		if probe {
			t.say("cooldown over: %s sends one call for all, the probe", worker)
		}
		err := h.Publish(ctx, job)
		_, limited := errors.AsType[*jobs.RateLimitedError](err)
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case probe && limited:
			t.add("the API answered 429 to the probe")
		case probe && err == nil:
			t.add("the API accepted the probe")
		case limited:
			t.add("the API answered 429 to %s", worker)
		case err != nil && !limited:
			t.add("a call of %s failed: %v", worker, err)
		}
		return err
	})
}

// transition prints a transition of the breaker.
func (t *timeline) transition(e breaker.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.To == breaker.Open && e.From == breaker.Closed:
		t.add("%d in a row: breaker OPEN for all %d workers, no calls for %s", e.Failures, t.o.Workers, t.o.Cooldown)
	case e.To == breaker.Open:
		t.add("breaker OPEN again for %s", t.o.Cooldown)
	case e.To == breaker.Closed:
		t.add("breaker CLOSED, recovered after %s: %d waiting jobs leave", round(e.At.Sub(e.OpenedAt)), t.o.Jobs-t.ended)
	}
}

// jobEnded counts the outcome of a job's run.
func (t *timeline) jobEnded(e publisher.JobEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Result {
	case publisher.Completed:
		t.completed++
		t.ended++
	case publisher.FailedFinal:
		t.ended++
	case publisher.Rescheduled:
		t.reschedules++
		t.rescheduled[e.Job.ID] = true
	}
	if t.ended == t.o.Jobs {
		close(t.done)
	}
}

// status prints the progress.
func (t *timeline) status(calls fakeapi.Stats) {
	v := t.view()
	state := v.State.String()
	if v.State == breaker.Open {
		state = fmt.Sprintf("OPEN for %.1f s", max(0, time.Until(v.OpenUntil).Seconds()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add("published %d of %d, calls %d, wasted %d, breaker %s", t.completed, t.o.Jobs, calls.Calls, calls.Limited, state)
}

// ServeHTTP is the incoming webhook of a Slack channel: it prints the messages.
func (t *timeline) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct{ Text string }
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, "invalid_payload", http.StatusBadRequest)
		return
	}
	t.say("Slack #alerts: %s", message.Text)
	_, _ = io.WriteString(w, "ok") // the caller may have left
}
