package breaker

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"time"
)

// Incident is the time from a breaker's opening to its closing, in the form of the commands
// and the HTTP API. Times are on Redis's clock; as JSON, null if there is none.
type Incident struct {
	ID      string    `json:"id" doc:"The same in the events of the incident." example:"4f2a"`
	Name    string    `json:"name" doc:"The breaker." example:"deviantart"`
	Started time.Time `json:"started" nullable:"true" doc:"When it opened." example:"2030-01-31T14:30:00Z"`
	Ended   time.Time `json:"ended" nullable:"true" doc:"When it closed; null while it lasts." example:"2030-01-31T14:35:01Z"`
	// Cause is one of the Cause constants, and so is EndedBy. An operator who opens the breaker
	// changes it.
	Cause   string `json:"cause" doc:"Why it opened; a failed probe does not change it." example:"hint"`
	EndedBy string `json:"ended_by" doc:"Why it closed." example:"success"`
	Reason  string `json:"reason" doc:"What the person said who opened it, or why the API refused the credentials." example:""`
	// Permanent is true if only a person can renew the refused credentials; see
	// [Outcome.WithReason].
	Permanent bool `json:"-"`
	// NoCredentials is as in [Status].
	NoCredentials bool   `json:"-"`
	By            string `json:"by" doc:"Who that was." example:""`
	Probes        int    `json:"probes" doc:"Probes that failed." example:"0"`
	Wasted        int    `json:"wasted" doc:"All calls that failed because of it: rate limited, refused credentials, or of an outage." example:"3"`
	// Rescheduled is as reported by [Breaker.Rescheduled].
	Rescheduled int      `json:"rescheduled" doc:"Rescheduled jobs." example:"12"`
	Instances   []string `json:"instances" doc:"Instances that had a part in it, at most 50." example:"[\"host:4711\"]"`
}

// Limited reports whether it began because of a limit of the API.
func (i Incident) Limited() bool { return ofLimit(i.Cause) }

func ofLimit(cause string) bool {
	return cause != CauseOutage && cause != CauseCredentials && cause != CauseManual
}

// MarshalJSON writes null for times that are not set.
func (i Incident) MarshalJSON() ([]byte, error) {
	type fields Incident // without this method
	i.Instances = append([]string{}, i.Instances...)
	return json.Marshal(struct {
		fields
		Started *time.Time `json:"started"`
		Ended   *time.Time `json:"ended"`
	}{fields(i), utc(i.Started), utc(i.Ended)})
}

// incident is an Incident as the scripts write it.
type incident struct {
	Incident
	Started   int64  `json:"started"`
	Ended     int64  `json:"ended"`
	Instances string `json:"instances"`
	Permanent int    `json:"permanent"`
	Missing   int    `json:"missing"`
}

func (in *incident) incident() Incident {
	i := in.Incident
	i.Started, i.Ended, i.Instances = instant(in.Started), instant(in.Ended), names(in.Instances)
	i.Permanent, i.NoCredentials = in.Permanent != 0, in.Missing != 0
	return i
}

// incident returns the current incident.
func (s Status) incident() Incident {
	return Incident{
		ID: s.Incident, Name: s.Name, Started: s.OpenedAt, Cause: s.IncidentCause, Reason: s.Reason, Permanent: s.Permanent, NoCredentials: s.NoCredentials, By: s.TrippedBy,
		Probes: s.Probes, Wasted: s.Wasted, Rescheduled: s.Rescheduled, Instances: s.Instances,
	}
}

func names(commas string) []string {
	if commas == "" {
		return nil
	}
	return strings.Split(commas, ",")
}

// tally counts deferred jobs until they are sent to Redis.
type tally struct {
	mu     sync.Mutex
	counts map[tallied]int
}

func (t *tally) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.counts) > 0
}

type tallied struct{ key, incident string }

// Rescheduled counts n jobs that were deferred because of an incident. The counts are sent
// to Redis once per RefreshInterval, and at Close.
func (b *Breaker) Rescheduled(incident string, n int) {
	if incident == "" || n <= 0 {
		return
	}
	t := &b.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[tallied]int{}
	}
	t.counts[tallied{b.key, incident}] += n
}

// flushRescheduled sends the counts; after an error it sends them again later.
func (c *member) flushRescheduled(ctx context.Context) {
	c.tally.mu.Lock()
	counts := c.tally.counts
	c.tally.counts = nil
	c.tally.mu.Unlock()
	for of, n := range maps.All(counts) {
		ctx, cancel := bounded(ctx)
		q := c.question(rescheduledScript, of.key)
		q.args = append(q.args, of.incident, n)
		_, err := q.ask(ctx, c.deadline(ctx))
		cancel()
		if err != nil {
			(&Breaker{core: c.core, key: of.key}).Rescheduled(of.incident, n)
		}
	}
}
