package alerts

import (
	"cmp"
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
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// alertJob is the payload of an alert job: it sends what is new of a subject, or one notice.
type alertJob struct {
	// Subject is the name of the breaker, or of a destination's keys together. Opened is when a key has opened.
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

// buffer holds what was observed until it is flushed to Redis.
type buffer struct {
	wake chan struct{}

	mu       sync.Mutex
	triggers map[string]trigger
	answers  map[string][]refusal // by kind and breaker, the last few
}

func newBuffer() *buffer {
	return &buffer{wake: make(chan struct{}, 1), triggers: map[string]trigger{}, answers: map[string][]refusal{}}
}

// change changes what is observed. It does not block.
func (b *buffer) change(f func()) {
	b.mu.Lock()
	f()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// add adds triggers.
func (b *buffer) add(list ...trigger) {
	b.change(func() {
		for _, t := range list {
			if len(b.triggers) < maxTriggers {
				b.triggers[t.id] = t
			}
		}
	})
}

// Observe makes a publisher report to these Alerts: the transitions of its breakers, its refused
// calls, which are the reasons that alerts give, and the failed jobs that block the later jobs of their keys. It
// panics if o is nil.
func (a *Alerts) Observe(o *publisher.Options) {
	o.Observe(publisher.Observer{
		OnTransition: a.onTransition,
		OnJob:        a.onJob,
		OnAnswer: func(x publisher.Answer) {
			kind := map[string]string{publisher.OutcomeRateLimited: limited, publisher.OutcomeUnauthorized: tokenRefused}[x.Outcome]
			a.noteRefusal(refusal{
				At: x.At, Destination: x.Destination, Key: x.Key, Kind: cmp.Or(kind, down), Job: x.Job, Status: x.Status, Body: x.Body, RetryAfter: x.RetryAfter,
			})
		},
	})
}

// noteRefusal records a refusal of an API, the reason in an alert. It does not block.
func (a *Alerts) noteRefusal(x refusal) {
	x.Body = text.Line(x.Body, 300)
	if x.At.IsZero() {
		x.At = time.Now()
	}
	name := x.Kind + " " + x.Destination + "/" + x.Key
	b := a.buffer
	b.change(func() {
		if list, known := b.answers[name]; known || len(b.answers) < maxTriggers {
			b.answers[name] = append(list[max(0, len(list)-maxAnswers+1):len(list):len(list)], x)
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
	for _, n := range to {
		a.buffer.add(trigger{id + "." + n.Name(), n, at, job})
	}
}

// singleID is the id of a notice that belongs to no incident.
func (a *Alerts) singleID(of string, at time.Time) string {
	id := fmt.Sprintf("%s.%d", of, at.Unix())
	if a.o.Namespace != string(store.DefaultNamespace) { // receivers may serve several installations
		id = a.o.Namespace + "." + id
	}
	return id
}

// flush writes what was observed to Redis. What Redis does not take is flushed later, but for
// answers: they only explain.
func (a *Alerts) flush(ctx context.Context) error {
	b := a.buffer
	b.mu.Lock()
	answers, waiting := b.answers, b.triggers
	b.answers, b.triggers = map[string][]refusal{}, map[string]trigger{}
	b.mu.Unlock()
	explained := a.store.addAnswers(ctx, answers) // before the alerts that show them
	triggers := slices.Collect(maps.Values(waiting))
	err := a.enqueue(ctx, triggers)
	if err != nil {
		b.add(triggers...)
	}
	return errors.Join(explained, err)
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
