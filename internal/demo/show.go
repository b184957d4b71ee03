package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// tone is how an event is meant.
type tone int

const (
	neutral tone = iota
	good
	bad
	caution
	aloud // events
)

// event is a line of the story.
type event struct {
	at   time.Time
	text string
	tone tone
}

// show watches the workers and prints what happens. Its methods may be called by
// all of them at once.
type show struct {
	o    Options
	view func() breaker.View

	mu        sync.Mutex
	events    []event // not yet printed
	wake      chan struct{}
	inFlight  []int  // by worker, from 0
	refused   []int  // workers that got 429, not yet printed
	probe     string // the job of the latest probe
	counted   int    // of those in a row that the breaker has counted, how many are printed
	open      bool   // printed, until its closing is printed
	completed int
	failed    int
	putOff    int // reschedules
	held      map[string]bool
	done      chan struct{} // closed when no job is left
}

func newShow(o Options) *show {
	return &show{
		o: o, view: func() breaker.View { return breaker.View{} },
		wake: make(chan struct{}, 1), inFlight: make([]int, o.Workers),
		held: map[string]bool{}, done: make(chan struct{}),
	}
}

// add adds a line; s.mu is held.
func (s *show) add(t tone, format string, args ...any) {
	s.events = append(s.events, event{at: time.Now(), text: fmt.Sprintf(format, args...), tone: t})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// say adds a line.
func (s *show) say(t tone, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(t, format, args...)
}

// news takes the lines that were not printed yet.
func (s *show) news() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.events
	s.events = nil
	return out
}

// watch makes a handler that lets the show see a worker's calls.
func (s *show) watch(worker int, h publisher.Handler) publisher.Handler {
	return publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		probe := s.callStarts(worker, job.ID)
		err := h.Publish(ctx, job)
		s.callEnds(worker, probe, err)
		return err
	})
}

// callStarts notes a call and reports whether it is the probe.
func (s *show) callStarts(worker int, job string) (probe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[worker-1]++
	if s.view().State != breaker.HalfOpen {
		return false
	}
	s.probe = job
	s.sayLate()
	s.add(caution, "cooldown over: %s sends one call for all, the probe", workerName(worker))
	return true
}

// answered notes a 429, before the breaker counts it.
func (s *show) answered(worker int, job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if job != s.probe {
		s.refused = append(s.refused, worker)
	}
}

func (s *show) callEnds(worker int, probe bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[worker-1]--
	var limited *jobs.RateLimitedError
	switch refused := errors.As(err, &limited); {
	case probe && refused:
		s.add(bad, "the API answered 429 to the probe")
	case probe && err == nil:
		s.add(good, "the API accepted the probe")
	case err != nil && !refused:
		s.add(bad, "a call of %s failed: %v", workerName(worker), err)
	}
	if s.calling() == 0 && s.view().State != breaker.Closed {
		s.sayLate()
	}
}

// calling counts the calls in flight; s.mu is held.
func (s *show) calling() int {
	n := 0
	for _, c := range s.inFlight {
		n += c
	}
	return n
}

// follow watches the breaker's count until ctx ends.
func (s *show) follow(ctx context.Context, b *breaker.Breaker) {
	for {
		changed := b.Changed()
		s.mu.Lock()
		if v := s.view(); v.State == breaker.Closed {
			s.sayCounted(v.Failures)
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// sayCounted prints the rate-limited answers that the breaker has counted up to
// now; s.mu is held.
func (s *show) sayCounted(failures int) {
	for s.counted < failures && len(s.refused) > 0 {
		s.counted++
		s.add(caution, "the API answered 429 to %s (%d of %d)", workerName(s.refused[0]), s.counted, s.o.Threshold)
		s.refused = s.refused[1:]
	}
	s.counted = failures // also where a success has set it back
}

// sayLate prints the calls that had started before the breaker opened; s.mu is
// held.
func (s *show) sayLate() {
	if n := len(s.refused); n > 0 && s.open {
		s.add(neutral, "calls under way when it opened that got 429 too: %d", n)
		s.refused = nil
	}
}

// transition prints a transition of the breaker.
func (s *show) transition(e breaker.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.To == breaker.Open && e.From == breaker.Closed:
		s.sayCounted(e.Failures)
		s.open = true
		s.add(bad, "breaker OPEN for all %d workers: no calls for %s", s.o.Workers, s.o.Cooldown)
		if s.calling() == 0 {
			s.sayLate()
		}
	case e.To == breaker.Open:
		s.add(bad, "breaker OPEN again for %s", s.o.Cooldown)
	case e.To == breaker.Closed:
		s.open, s.counted = false, 0
		s.add(good, "breaker CLOSED, recovered after %s: %d waiting jobs leave", round(e.At.Sub(e.OpenedAt)), s.o.Jobs-s.completed-s.failed)
	}
}

// jobEnded counts what became of a job after a run.
func (s *show) jobEnded(e publisher.JobEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Result {
	case publisher.Completed:
		s.completed++
	case publisher.FailedFinal:
		s.failed++
	case publisher.Rescheduled:
		s.putOff++
		s.held[e.Job.ID] = true
	}
	if s.completed+s.failed == s.o.Jobs {
		close(s.done)
	}
}

// frame is what a picture shows.
type frame struct {
	view      breaker.View
	completed int
	waiting   int // neither done nor in a call
	inFlight  []int
	calls     int
	wasted    int
}

func (s *show) frame(calls, wasted int) frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := frame{view: s.view(), completed: s.completed, calls: calls, wasted: wasted, inFlight: append([]int(nil), s.inFlight...)}
	f.waiting = s.o.Jobs - s.completed - s.failed - s.calling()
	return f
}

// round shortens a time to a tenth of a second.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
