package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/jobs"
)

// Kinds of alert jobs.
const (
	kindIncident = "incident" // sends what is new of a subject
	kindNotice   = "notice"   // sends one notice
)

// alertJob is the payload of an alert job.
type alertJob struct {
	Kind string `json:"kind"`
	// Subject is the breaker's name, or that of a destination's keys; Event is what has happened to
	// it, Incident in which incident.
	Subject  string `json:"subject,omitempty"`
	Event    string `json:"event,omitempty"`
	Incident string `json:"incident,omitempty"`
	// Opened is when a key has opened.
	Opened time.Time `json:"opened,omitzero"`
	// Single is the notice to send.
	Single *singleJob `json:"single,omitempty"`
}

// singleJob is a notice that belongs to no incident; exactly one of the pointers is set.
type singleJob struct {
	ID          string        `json:"id"`
	Burst       *burst        `json:"burst,omitempty"`
	Poison      *poisoned     `json:"poison,omitempty"`
	Alone       *refusedAlone `json:"refused_alone,omitempty"`
	Overdue     *overdue      `json:"overdue,omitempty"`
	Unreached   *unreached    `json:"unreached,omitempty"`
	Unserved    *unserved     `json:"unserved,omitempty"`
	Undelivered *undelivered  `json:"undelivered,omitempty"`
	Eviction    *eviction     `json:"eviction,omitempty"`
	// Ends is the id of the earlier notice that this one ends.
	Ends string `json:"ends,omitempty"`
	// Of is the notifier whose present failure it reports, by the name of ID; the failure
	// may be over when the notice is sent.
	Of string `json:"of,omitempty"`
}

// report is what the notice reports, nil if it is empty.
func (s *singleJob) report() report {
	switch {
	case s.Burst != nil:
		return s.Burst
	case s.Poison != nil:
		return s.Poison
	case s.Alone != nil:
		return s.Alone
	case s.Overdue != nil:
		return s.Overdue
	case s.Unreached != nil:
		return s.Unreached
	case s.Unserved != nil:
		return s.Unserved
	case s.Undelivered != nil:
		return s.Undelivered
	case s.Eviction != nil:
		return s.Eviction
	}
	return nil
}

// trigger is an alert job to be.
type trigger struct {
	id     string
	key    string // the notifier
	urgent bool
	at     time.Time // zero: now
	job    alertJob
}

func (t trigger) spec() *jobs.Spec {
	options := []jobs.Option{jobs.ID(jobID(t.id)), jobs.Key(t.key)}
	if t.urgent {
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

// The first failed probes of an incident are shown one by one, those after them are summed
// up.
const (
	probesEach  = 20
	probesEvery = 30 * time.Second
)

// keysEvery is how often at most the message about a destination's keys is renewed.
const keysEvery = 5 * time.Second

// maxTriggers bounds the triggers kept while Redis is away. A dropped one is no loss: each
// job sends all that is new.
const maxTriggers = 10_000

// triggers are alert jobs that are not in Redis yet. All workers make the same ones, with
// the same ids, so that each is enqueued once.
type triggers struct {
	mu    sync.Mutex
	list  []trigger
	known map[string]bool
	// keys are incidents of keys, by destination.
	keys keyIncidents
	wake chan struct{}
}

func newTriggers() triggers {
	return triggers{known: map[string]bool{}, keys: keyIncidents{}, wake: make(chan struct{}, 1)}
}

func (t *triggers) add(more ...trigger) {
	t.mu.Lock()
	for _, one := range more {
		if !t.known[one.id] && len(t.list) < maxTriggers {
			t.known[one.id] = true
			t.list = append(t.list, one)
		}
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take removes and returns all triggers.
func (t *triggers) take() (list []trigger, keys keyIncidents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.list = t.list, nil
	keys, t.keys = t.keys, keyIncidents{}
	t.known = map[string]bool{}
	return list, keys
}

// noteKeys adds incidents of keys.
func (t *triggers) noteKeys(more keyIncidents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.add(more)
}

// onTransition records a transition of a breaker. All instances do, and make one alert
// together. It does not block.
func (a *Alerts) onTransition(e breaker.Event) {
	if e.Key != "" {
		a.onKeyEvent(e)
		return
	}
	switch {
	case e.To == breaker.Open && e.From == breaker.Closed:
		a.due.add(a.incidentTriggers(a.o.followers(), e.Name, e.Incident, "opened", time.Time{})...)
	case e.To == breaker.Closed && e.From != breaker.Closed:
		a.due.add(a.incidentTriggers(a.o.followers(), e.Name, e.Incident, "closed", time.Time{})...)
	case e.To == breaker.Open: // a pager does not show failed probes
		event, at := fmt.Sprintf("probe-%d", e.Generation), time.Time{}
		if e.Probes > probesEach {
			at = e.At.Truncate(probesEvery).Add(probesEvery)
			event = fmt.Sprintf("probes-%d", at.Unix())
		}
		a.due.add(a.incidentTriggers(a.o.names(false), e.Name, e.Incident, event, at)...)
	}
}

// onKeyEvent joins transitions of a destination's keys within a few seconds.
func (a *Alerts) onKeyEvent(e breaker.Event) {
	if e.To == breaker.HalfOpen {
		return
	}
	destination, refused := strings.TrimSuffix(e.Name, "/"+e.Key), isRefused(e.IncidentCause, e.Permanent)
	if len(a.o.keyFollowers(refused)) == 0 {
		return
	}
	in := keyIncident{}
	if e.To == breaker.Closed {
		in = keyIncident{ended: true, counts: counts{e.Probes, e.Wasted, e.Rescheduled}}
	}
	if !refused {
		a.due.noteKeys(keyIncidents{destination: {e.Incident: in}})
	}
	var opened time.Time
	if e.To == breaker.Open && e.From == breaker.Closed {
		opened = e.At
	}
	a.due.add(a.keysTriggers(destination, refused, opened, e.At)...)
}

// keysTriggers are the jobs that are due at the end of the few seconds around at.
func (a *Alerts) keysTriggers(destination string, refused bool, opened, at time.Time) []trigger {
	slot := at.Truncate(keysEvery).Add(keysEvery)
	subject, event := destination+allKeys, "keys"
	if refused {
		subject, event = destination+refusedKeys, "refused"
	}
	var out []trigger
	for _, name := range a.o.keyFollowers(refused) {
		out = append(out, trigger{
			id: fmt.Sprintf("%s.%s.%d.%s", destination, event, slot.Unix(), name), key: name, urgent: a.o.notifier(name).Pager(), at: slot,
			job: alertJob{Kind: kindIncident, Subject: subject, Event: event, Opened: opened},
		})
	}
	return out
}

// incidentTriggers are the jobs of an event, one for each notifier.
func (a *Alerts) incidentTriggers(notifiers []string, subject, incident, event string, at time.Time) []trigger {
	var out []trigger
	for _, name := range notifiers {
		out = append(out, trigger{
			id: incident + "." + event + "." + name, key: name, urgent: a.o.notifier(name).Pager(), at: at,
			job: alertJob{Kind: kindIncident, Subject: subject, Event: event, Incident: incident},
		})
	}
	return out
}

// singleTriggers are the jobs of a notice that belongs to no incident.
func (a *Alerts) singleTriggers(id string, s singleJob) []trigger {
	s.ID = id
	var out []trigger
	for _, name := range a.o.receivers() {
		out = append(out, a.singleTrigger(id, name, s))
	}
	return out
}

func (a *Alerts) singleTrigger(id, name string, s singleJob) trigger {
	return trigger{id: id + "." + name, key: name, urgent: a.o.notifier(name).Pager(), job: alertJob{Kind: kindNotice, Single: &s}}
}

// sendTriggers writes due triggers to Redis; if that fails they are due again.
func (a *Alerts) sendTriggers(ctx context.Context) error {
	// The reasons come before the alerts that show them.
	if err := a.sendAnswers(ctx); err != nil {
		return err
	}
	list, keys := a.due.take()
	if err := a.store.addKeys(ctx, keys); err != nil {
		a.due.noteKeys(keys)
		a.due.add(list...)
		return err
	}
	return a.send(ctx, list)
}

// send enqueues alert jobs. One that exists already is none.
func (a *Alerts) send(ctx context.Context, list []trigger) error {
	if len(list) == 0 {
		return nil
	}
	specs := make([]*jobs.Spec, 0, len(list))
	for _, t := range list {
		specs = append(specs, t.spec())
	}
	results, err := a.client.EnqueueMany(store.AsSystem(ctx), specs)
	if err != nil {
		a.due.add(list...)
		return fmt.Errorf("alerts: enqueue: %w", err)
	}
	for i, t := range list {
		if err := results[i].Err; err != nil {
			a.log.Error("an alert could not be enqueued", "job", t.id, "event", t.job.Event, "error", err)
		}
	}
	return nil
}
