package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/publisher"
)

// Observe makes a publisher report to a: the transitions of its breakers, its refused
// calls, which are the reasons that alerts give, and failed jobs.
func (a *Alerts) Observe(o *publisher.Options) {
	o.Observe(publisher.Observer{
		OnTransition: a.onTransition,
		OnAnswer: func(x publisher.Answer) {
			a.noteRefusal(refusal{
				At: x.At, Destination: x.Destination, Key: x.Key, Job: x.Job, Status: x.Status, Body: x.Body, RetryAfter: x.RetryAfter,
			})
		},
		OnJob: func(e publisher.JobEvent) {
			if e.Result == publisher.FailedFinal {
				a.noteFailed(failedJob{
					Destination: e.Destination, Key: e.Job.Key, Job: e.Job.ID,
					Poison: e.Poison, Crashes: e.Job.Crashes, LastError: e.LastError,
				})
			}
		},
	})
}

// Serve makes a publisher of the same Namespace deliver alerts. Errors: it has another one, or
// those of [publisher.Publisher.Handle].
func (a *Alerts) Serve(p *publisher.Publisher) error {
	if p == nil {
		return errors.New("alerts: serve: the publisher is nil")
	}
	if err := a.needsRedis("serve"); err != nil {
		return err
	}
	if p.Namespace() != a.o.Namespace {
		return fmt.Errorf("alerts: serve: Namespace is %q, and the publisher's is %q", a.o.Namespace, p.Namespace())
	}
	return p.Handle(Destination, a, publisher.Concurrency(concurrency), publisher.Timeout(timeout), publisher.Breaker(breakerOptions()))
}

// failedJob is a job that has failed for good.
type failedJob struct {
	Destination, Key, Job string
	// Poison is true if its workers have died with it, Crashes their number.
	Poison  bool
	Crashes int
	// LastError is what is kept with the job.
	LastError string
}

// poisonEvery is how often at most poison jobs of a destination are reported.
const poisonEvery = 10 * time.Minute

// observed are failed jobs and answers that are not in Redis yet.
type observed struct {
	mu      sync.Mutex
	failed  map[string]*burst // by destination
	poison  map[string]*poisoned
	answers map[string][]refusal // by breaker, the last few
	wake    chan struct{}
}

func newObserved() observed {
	return observed{
		failed: map[string]*burst{}, poison: map[string]*poisoned{}, answers: map[string][]refusal{},
		wake: make(chan struct{}, 1),
	}
}

// noteFailed records a job that has failed for good. It does not block.
func (a *Alerts) noteFailed(j failedJob) {
	e := &a.observed
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.Poison && e.poison[j.Destination] == nil {
		e.poison[j.Destination] = &poisoned{
			Destination: j.Destination, Key: j.Key, Job: j.Job, Crashes: j.Crashes, LastError: text.Line(j.LastError, 500),
		}
	}
	if a.o.FailedBurst > 0 {
		b := e.failed[j.Destination]
		if b == nil {
			b = &burst{Destination: j.Destination}
			e.failed[j.Destination] = b
		}
		b.Failed++
		b.LastError, b.LastJob = text.Line(j.LastError, 500), j.Job
	}
}

// maxNames bounds the breakers whose answers are not in Redis yet.
const maxNames = 1000

// noteRefusal records a refusal of an API, the reason in an alert. It does not block.
func (a *Alerts) noteRefusal(x refusal) {
	x.Body = text.Line(x.Body, 300)
	if x.At.IsZero() {
		x.At = time.Now()
	}
	e := &a.observed
	e.mu.Lock()
	name := x.Destination + "/" + x.Key
	if list, known := e.answers[name]; known || len(e.answers) < maxNames {
		list = append(list, x)
		e.answers[name] = list[max(0, len(list)-maxAnswers):]
	}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// sendAnswers writes the refusals to Redis. If that fails they are dropped: they only explain.
func (a *Alerts) sendAnswers(ctx context.Context) error {
	a.observed.mu.Lock()
	lists := a.observed.answers
	a.observed.answers = map[string][]refusal{}
	a.observed.mu.Unlock()
	for _, list := range lists {
		for _, x := range list {
			if err := a.store.addAnswer(ctx, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendFailed counts the failed jobs and reports poison and bursts.
func (a *Alerts) sendFailed(ctx context.Context) error {
	e := &a.observed
	e.mu.Lock()
	failed, poison := e.failed, e.poison
	e.failed, e.poison = map[string]*burst{}, map[string]*poisoned{}
	e.mu.Unlock()
	if err := a.reportFailed(ctx, failed, poison); err != nil {
		a.putBack(failed, poison)
		return err
	}
	return nil
}

// reportFailed removes reported jobs from the maps.
func (a *Alerts) reportFailed(ctx context.Context, failed map[string]*burst, poison map[string]*poisoned) error {
	if len(failed)+len(poison) == 0 {
		return nil
	}
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	for destination, p := range poison {
		p.At = now
		if err := a.notifyOnce(ctx, poisonEvery, "poison", destination, singleJob{Poison: p}, now); err != nil {
			return err
		}
		delete(poison, destination)
	}
	for destination, b := range failed {
		sum, err := a.store.failed(ctx, destination, b.Failed, a.o.FailedWithin)
		if err != nil {
			return err
		}
		b.Failed = 0 // it is counted
		if sum >= a.o.FailedBurst {
			all := *b
			all.Failed, all.Within, all.At = sum, a.o.FailedWithin, now
			if err := a.notifyOnce(ctx, max(a.o.FailedWithin, 10*time.Minute), "burst", destination, singleJob{Burst: &all}, now); err != nil {
				return err
			}
		}
		delete(failed, destination)
	}
	return nil
}

// putBack keeps unreported jobs for the next time.
func (a *Alerts) putBack(failed map[string]*burst, poison map[string]*poisoned) {
	e := &a.observed
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(e.poison, poison)
	for destination, b := range failed {
		if newer := e.failed[destination]; newer != nil {
			newer.Failed += b.Failed
			continue
		}
		e.failed[destination] = b
	}
}
