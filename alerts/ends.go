package alerts

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// JobEnd is a job that has failed for good.
type JobEnd struct {
	Destination, Key, Job string
	// Poison says that its workers have died with it, Crashes how many.
	Poison  bool
	Crashes int
	// LastError is what is kept with the job.
	LastError string
}

// poisonEvery is how often at most poison jobs of a destination are told of.
const poisonEvery = 10 * time.Minute

// ends are failed jobs and answers that Redis has not been told of.
type ends struct {
	mu      sync.Mutex
	failed  map[string]*burst // by destination
	poison  map[string]*poisoned
	answers map[string][]Answer // by breaker, the last few
	wake    chan struct{}
}

func newEnds() ends {
	return ends{
		failed: map[string]*burst{}, poison: map[string]*poisoned{}, answers: map[string][]Answer{},
		wake: make(chan struct{}, 1),
	}
}

// OnJob takes note of a job that has failed for good. It does not block.
func (a *Alerts) OnJob(j JobEnd) {
	e := &a.ends
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.Poison && e.poison[j.Destination] == nil {
		e.poison[j.Destination] = &poisoned{
			Destination: j.Destination, Key: j.Key, Job: j.Job, Crashes: j.Crashes, LastError: clean(j.LastError, 500),
		}
	}
	if a.o.FailedBurst > 0 {
		b := e.failed[j.Destination]
		if b == nil {
			b = &burst{Destination: j.Destination}
			e.failed[j.Destination] = b
		}
		b.Failed++
		b.LastError, b.LastJob = clean(j.LastError, 500), j.Job
	}
}

// mostNames bounds the breakers whose answers Redis has not got yet.
const mostNames = 1000

// OnAnswer takes note of a refusal by an API: it is what an alert gives as the reason.
// It does not block.
func (a *Alerts) OnAnswer(x Answer) {
	x.Body = clean(x.Body, 300)
	if x.At.IsZero() {
		x.At = time.Now()
	}
	e := &a.ends
	e.mu.Lock()
	name := x.Destination + "/" + x.Key
	if list, known := e.answers[name]; known || len(e.answers) < mostNames {
		list = append(list, x)
		e.answers[name] = list[max(0, len(list)-mostAnswers):]
	}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// sendAnswers writes the refusals to Redis. Those that it does not take are dropped:
// they are an explanation, no more.
func (a *Alerts) sendAnswers(ctx context.Context) error {
	a.ends.mu.Lock()
	lists := a.ends.answers
	a.ends.answers = map[string][]Answer{}
	a.ends.mu.Unlock()
	for _, list := range lists {
		for _, x := range list {
			if err := a.store.addAnswer(ctx, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendEnds counts the failed jobs and tells of poison and bursts.
func (a *Alerts) sendEnds(ctx context.Context) error {
	e := &a.ends
	e.mu.Lock()
	failed, poison := e.failed, e.poison
	e.failed, e.poison = map[string]*burst{}, map[string]*poisoned{}
	e.mu.Unlock()
	if err := a.tellEnds(ctx, failed, poison); err != nil {
		a.putBack(failed, poison)
		return err
	}
	return nil
}

// tellEnds takes what is done out of the maps.
func (a *Alerts) tellEnds(ctx context.Context, failed map[string]*burst, poison map[string]*poisoned) error {
	if len(failed)+len(poison) == 0 {
		return nil
	}
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	for destination, p := range poison {
		p.At = now
		if err := a.noticeOnce(ctx, poisonEvery, "poison", destination, &notice{Poison: p}, now); err != nil {
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
			told := *b
			told.Failed, told.Within, told.At = sum, a.o.FailedWithin, now
			if err := a.noticeOnce(ctx, max(a.o.FailedWithin, 10*time.Minute), "burst", destination, &notice{Burst: &told}, now); err != nil {
				return err
			}
		}
		delete(failed, destination)
	}
	return nil
}

// putBack keeps what could not be told for the next time.
func (a *Alerts) putBack(failed map[string]*burst, poison map[string]*poisoned) {
	e := &a.ends
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

// noticeOnce tells one thing, unless something of its kind was told within the period.
// It can be repeated after an error: a notice of one period has one id.
func (a *Alerts) noticeOnce(ctx context.Context, period time.Duration, kind, about string, n *notice, now time.Time) error {
	if told, err := a.store.done(ctx, kind, about); err != nil || told {
		return err
	}
	id := fmt.Sprintf("%s.%s.%d", about, kind, now.Truncate(period).Unix())
	if err := a.send(ctx, []trigger{a.noticeTrigger(id, n)}); err != nil {
		return err
	}
	_, err := a.store.once(ctx, period, kind, about)
	return err
}
