package alerts

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// What an alert job is for.
const (
	kindIncident = "incident" // bring people up to date about a subject
	kindNotice   = "notice"   // tell them one thing
)

// alertJob is the payload of an alert job.
type alertJob struct {
	Kind string `json:"kind"`
	// Subject is the breaker's name, or "destination/*"; Event is what has happened to
	// it, Incident in which incident.
	Subject  string `json:"subject,omitempty"`
	Event    string `json:"event,omitempty"`
	Incident string `json:"incident,omitempty"`
	// Heard is when a key has opened.
	Heard time.Time `json:"heard,omitzero"`
	// Notice is what to tell.
	Notice *notice `json:"notice,omitempty"`
}

// trigger is an alert job to be.
type trigger struct {
	id  string
	key string
	at  time.Time // zero: now
	job alertJob
}

func (t trigger) spec() *jobs.Spec {
	options := []jobs.Option{jobs.ID(t.id), jobs.Key(t.key)}
	if t.key == toPager {
		options = append(options, jobs.Prioritize(jobs.PriorityHigh))
	}
	if !t.at.IsZero() {
		options = append(options, jobs.At(t.at))
	}
	return jobs.New(Destination, t.job, options...)
}

// Each of the first failed probes of an incident is shown at once, those after them are
// summed up.
const (
	probesEach  = 20
	probesEvery = 30 * time.Second
)

// keysEvery is how often at most the message about a destination's keys is renewed.
const keysEvery = 5 * time.Second

// mostTriggers bounds what is remembered while Redis is away. What is dropped is made
// up for: each job brings people up to date about all that has happened.
const mostTriggers = 10_000

// triggers are alert jobs that Redis has not got yet. All workers make the same ones,
// with the same ids, so that each comes to be once.
type triggers struct {
	mu    sync.Mutex
	list  []trigger
	known map[string]bool
	// keys are incidents of keys that were heard of, by destination.
	keys keyIncidents
	wake chan struct{}
}

func newTriggers() triggers {
	return triggers{known: map[string]bool{}, keys: keyIncidents{}, wake: make(chan struct{}, 1)}
}

func (t *triggers) add(more ...trigger) {
	t.mu.Lock()
	for _, one := range more {
		if !t.known[one.id] && len(t.list) < mostTriggers {
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

// take returns what is to be sent, and forgets it.
func (t *triggers) take() (list []trigger, keys keyIncidents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.list = t.list, nil
	keys, t.keys = t.keys, keyIncidents{}
	t.known = map[string]bool{}
	return list, keys
}

// heard notes incidents of keys.
func (t *triggers) heard(more keyIncidents) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.add(more)
}

// OnEvent takes note of a transition of a breaker. It is made for
// [breaker.Options.OnEvent], in every instance: together they send one alert. It does
// not block.
func (a *Alerts) OnEvent(e breaker.Event) {
	if e.Key != "" {
		a.onKeyEvent(e)
		return
	}
	switch {
	case e.To == breaker.Open && e.From == breaker.Closed:
		a.due.add(a.incidentTriggers(e.Name, e.Incident, "opened", time.Time{})...)
	case e.To == breaker.Closed && e.From != breaker.Closed:
		a.due.add(a.incidentTriggers(e.Name, e.Incident, "closed", time.Time{})...)
	case e.To == breaker.Open && a.o.slack():
		// PagerDuty has nothing to hear of that.
		t := trigger{
			id: fmt.Sprintf("%s.probe-%d", e.Incident, e.Generation), key: toSlack,
			job: alertJob{Kind: kindIncident, Subject: e.Name, Event: "probe", Incident: e.Incident},
		}
		if e.Probes > probesEach {
			t.at = e.At.Truncate(probesEvery).Add(probesEvery)
			t.id = fmt.Sprintf("%s.probes-%d", e.Incident, t.at.Unix())
		}
		a.due.add(t)
	}
}

// onKeyEvent sums up what happens to the keys of a destination within a few seconds.
func (a *Alerts) onKeyEvent(e breaker.Event) {
	if !a.o.slack() || e.To == breaker.HalfOpen {
		return
	}
	destination := strings.TrimSuffix(e.Name, "/"+e.Key)
	in := keyIncident{}
	if e.To == breaker.Closed {
		in = keyIncident{ended: true, counts: counts{e.Probes, e.Wasted, e.Rescheduled}}
	}
	a.due.heard(keyIncidents{destination: {e.Incident: in}})
	var heard time.Time
	if e.To == breaker.Open && e.From == breaker.Closed {
		heard = e.At
	}
	a.due.add(keysTrigger(destination, heard, e.At))
}

// keysTrigger is the job that is due at the end of the few seconds around at.
func keysTrigger(destination string, heard, at time.Time) trigger {
	slot := at.Truncate(keysEvery).Add(keysEvery)
	return trigger{
		id: fmt.Sprintf("%s.keys.%d", destination, slot.Unix()), key: toSlack, at: slot,
		job: alertJob{Kind: kindIncident, Subject: destination + allKeys, Event: "keys", Heard: heard},
	}
}

// incidentTriggers are the jobs for each of those who are told of an event.
func (a *Alerts) incidentTriggers(name, incident, event string, at time.Time) []trigger {
	var out []trigger
	job := alertJob{Kind: kindIncident, Subject: name, Event: event, Incident: incident}
	if a.o.slack() {
		out = append(out, trigger{id: incident + "." + event, key: toSlack, at: at, job: job})
	}
	if a.pages() {
		out = append(out, trigger{id: incident + "." + event + ".pager", key: toPager, at: at, job: job})
	}
	return out
}

// sendTriggers writes what is due to Redis; what could not be written is due again.
func (a *Alerts) sendTriggers(ctx context.Context) error {
	// The reasons come before what tells of them.
	if err := a.sendAnswers(ctx); err != nil {
		return err
	}
	list, keys := a.due.take()
	if err := a.store.addKeys(ctx, keys); err != nil {
		a.due.heard(keys)
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
	results, err := a.client.EnqueueMany(ctx, specs)
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
