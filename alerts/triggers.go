package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// alertJob is the payload of an alert job: it sends what is new of a subject, or one notice.
type alertJob struct {
	// Subject is the breaker's name, or that of a destination's keys. Opened is when a key has opened.
	Subject string    `json:"subject,omitempty"`
	Opened  time.Time `json:"opened,omitzero"`
	// Single is the notice to send.
	Single *single `json:"single,omitempty"`
}

// trigger is an alert job to be. All workers make the same ones, with the same ids, so that
// each is enqueued once.
type trigger struct {
	id  string
	to  notice.Notifier
	at  time.Time // zero: now
	job alertJob
}

func (t trigger) spec() *jobs.Spec {
	options := []jobs.Option{jobs.ID(jobID(t.id)), jobs.Key(t.to.Name())}
	if t.to.Pager() {
		options = append(options, jobs.Prioritize(jobs.PriorityHigh))
	}
	if !t.at.IsZero() {
		options = append(options, jobs.At(t.at))
	}
	return jobs.New(Destination, t.job, options...)
}

// maxJobID is the length of the longest id of a job.
const maxJobID = 128

// jobID makes an id of a job of a trigger's, in which the incident of a key has a slash and can be
// too long.
func jobID(id string) string {
	id = strings.ReplaceAll(id, "/", ":")
	if len(id) > maxJobID {
		sum := sha256.Sum256([]byte(id))
		id = id[:maxJobID-17] + ":" + hex.EncodeToString(sum[:8])
	}
	return id
}

const (
	// The first failed probes of an incident are shown one by one, those after them are summed
	// up.
	probesEach  = 20
	probesEvery = 30 * time.Second
	// keysEvery is how often at most the message about a destination's keys is renewed.
	keysEvery = 5 * time.Second
	// answersLate is how long the responses that opened a breaker can be on their way to Redis.
	answersLate = time.Second
	// maxTriggers bounds the triggers, and the breakers with answers, that are kept while Redis
	// is away. A dropped one is no loss: each job sends all that is new.
	maxTriggers = 10_000
)

// observed is what has happened and is not in Redis yet.
type observed struct {
	triggers map[string]trigger
	answers  map[string][]refusal // by breaker, the last few
	failed   map[string]*single   // bursts, by destination
	poison   map[string]*single
}

func newObserved() observed {
	return observed{map[string]trigger{}, map[string][]refusal{}, map[string]*single{}, map[string]*single{}}
}

// buffer holds what is observed until it is flushed.
type buffer struct {
	mu sync.Mutex
	observed
	wake chan struct{}
}

// change changes what is observed. It does not block.
func (b *buffer) change(f func(*observed)) {
	b.mu.Lock()
	f(&b.observed)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// add adds triggers.
func (o *observed) add(list ...trigger) {
	for _, t := range list {
		if len(o.triggers) < maxTriggers {
			o.triggers[t.id] = t
		}
	}
}

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
				a.noteFailed(e.Poison, single{
					Destination: e.Destination, Key: e.Job.Key, Job: e.Job.ID, Count: e.Job.Crashes, Problem: e.LastError,
				})
			}
		},
	})
}

// noteFailed records a job that has failed for good. It does not block.
func (a *Alerts) noteFailed(poison bool, s single) {
	s.Problem = text.Line(s.Problem, 500)
	a.buffer.change(func(o *observed) {
		if poison && o.poison[s.Destination] == nil {
			p := s
			p.Kind = poisonJob
			o.poison[s.Destination] = &p
		}
		if a.o.FailedBurst > 0 {
			was := o.failed[s.Destination]
			s.Kind, s.Count, s.Key = failedBurst, 1, ""
			if was != nil {
				s.Count += was.Count
			}
			o.failed[s.Destination] = &s
		}
	})
}

// noteRefusal records a refusal of an API, the reason in an alert. It does not block.
func (a *Alerts) noteRefusal(x refusal) {
	x.Body = text.Line(x.Body, 300)
	if x.At.IsZero() {
		x.At = time.Now()
	}
	name := strings.TrimSuffix(x.Destination+"/"+x.Key, "/")
	a.buffer.change(func(o *observed) {
		if list, known := o.answers[name]; known || len(o.answers) < maxTriggers {
			o.answers[name] = append(list[max(0, len(list)-maxAnswers+1):len(list):len(list)], x)
		}
	})
}

// onTransition records a transition of a breaker. All instances do, and make one alert
// together. It does not block.
func (a *Alerts) onTransition(e breaker.Event) {
	var event string
	var at time.Time
	readers, job := a.o.followers(true), alertJob{Subject: e.Name}
	switch {
	case e.Key != "":
		if e.To == breaker.HalfOpen {
			return
		}
		if e.To == breaker.Open && e.From == breaker.Closed {
			job.Opened = e.At
		}
		a.triggerKeys(strings.TrimSuffix(e.Name, "/"+e.Key), isRefused(e.IncidentCause, e.Permanent), job.Opened, e.At)
		return
	case e.To == breaker.Open && e.From == breaker.Closed:
		event = "opened"
	case e.To == breaker.Closed && e.From != breaker.Closed:
		event = "closed"
	case e.To == breaker.Open: // a pager does not show failed probes
		event, readers = fmt.Sprintf("probe-%d", e.Generation), a.o.followers(false)
		if e.Probes > probesEach {
			at = e.At.Truncate(probesEvery).Add(probesEvery)
			event = fmt.Sprintf("probes-%d", at.Unix())
		}
	default:
		return
	}
	a.trigger(readers, e.Incident+"."+event, at, job)
	if event == "opened" { // responses of the API that other workers got may be late
		a.trigger(a.o.followers(false), e.Incident+".why", e.At.Add(answersLate), job)
	}
}

// triggerKeys joins transitions of a destination's keys within a few seconds: the jobs are due
// at the end of those around at.
func (a *Alerts) triggerKeys(destination string, refused bool, opened, at time.Time) {
	slot := at.Truncate(keysEvery).Add(keysEvery)
	subject, event := destination+allKeys, "keys"
	if refused {
		subject, event = destination+refusedKeys, "refused"
	}
	// Pagers get only the threads of refused credentials.
	a.trigger(a.o.followers(refused), fmt.Sprintf("%s.%s.%d", destination, event, slot.Unix()), slot, alertJob{Subject: subject, Opened: opened})
}

// trigger has a job enqueued for each notifier.
func (a *Alerts) trigger(to []notice.Notifier, id string, at time.Time, job alertJob) {
	a.buffer.change(func(o *observed) {
		for _, n := range to {
			o.add(trigger{id + "." + n.Name(), n, at, job})
		}
	})
}

// notifyOnce sends a notice that belongs to no incident, unless one of its kind was sent
// within the period of its rule.
func (a *Alerts) notifyOnce(ctx context.Context, s single) error {
	ok, err := a.store.once(ctx, max(rules[s.Kind].every, s.Span), s.Kind, s.Destination)
	if err != nil || !ok {
		return err
	}
	s.ID = fmt.Sprintf("%s.%s.%d", s.Destination, s.Kind, s.At.Unix())
	if a.o.Namespace != string(store.DefaultNamespace) { // receivers may serve several installations
		s.ID = a.o.Namespace + "." + s.ID
	}
	a.trigger(a.o.receivers(), s.ID, time.Time{}, alertJob{Single: &s})
	return nil
}

// flush writes what was observed to Redis. What Redis does not take is flushed later, but for
// answers: they only explain.
func (a *Alerts) flush(ctx context.Context) error {
	b := &a.buffer
	b.mu.Lock()
	now := b.observed
	b.observed = newObserved()
	b.mu.Unlock()
	// The reasons come before the alerts that show them.
	err := errors.Join(a.store.addAnswers(ctx, now.answers), a.countFailed(ctx, &now))
	b.change(func(o *observed) {
		maps.Copy(now.triggers, o.triggers)
		o.triggers = map[string]trigger{}
		maps.Copy(o.poison, now.poison)
		for destination, s := range now.failed {
			if newer := o.failed[destination]; newer != nil {
				newer.Count += s.Count
			} else {
				o.failed[destination] = s
			}
		}
	})
	if sent := a.enqueue(ctx, slices.Collect(maps.Values(now.triggers))); sent != nil {
		b.change(func(o *observed) { o.add(slices.Collect(maps.Values(now.triggers))...) })
		err = errors.Join(err, sent)
	}
	return err
}

// countFailed counts the failed jobs and reports poison and bursts. What is reported leaves o.
func (a *Alerts) countFailed(ctx context.Context, o *observed) error {
	if len(o.failed)+len(o.poison) == 0 {
		return nil
	}
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	for destination, p := range o.poison {
		p.At = now
		if err := a.notifyOnce(ctx, *p); err != nil {
			return err
		}
		delete(o.poison, destination)
	}
	for destination, s := range o.failed {
		sum, err := a.store.failed(ctx, destination, s.Count, a.o.FailedWithin)
		if err != nil {
			return err
		}
		s.Count = 0 // it is counted
		if sum >= a.o.FailedBurst {
			all := *s
			all.Count, all.Span, all.At = sum, a.o.FailedWithin, now
			if err := a.notifyOnce(ctx, all); err != nil {
				return err
			}
		}
		delete(o.failed, destination)
	}
	return nil
}

// enqueue enqueues alert jobs. One that exists already is none.
func (a *Alerts) enqueue(ctx context.Context, list []trigger) error {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(x, y trigger) int { return strings.Compare(x.id, y.id) })
	specs := make([]*jobs.Spec, 0, len(list))
	for _, t := range list {
		specs = append(specs, t.spec())
	}
	results, err := a.client.EnqueueMany(store.AsSystem(ctx), specs)
	if err != nil {
		return fmt.Errorf("alerts: enqueue: %w", err)
	}
	for i, t := range list {
		if err := results[i].Err; err != nil {
			a.log.ErrorContext(ctx, "an alert could not be enqueued", "job", t.id, "error", err)
		}
	}
	return nil
}
