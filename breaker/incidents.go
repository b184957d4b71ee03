package breaker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Incident is all that happened from a breaker's opening to its closing. Times are
// on Redis's clock.
type Incident struct {
	// ID is the same in the events of the incident.
	ID string
	// Name is the breaker's: the destination, or "destination/key".
	Name string
	// Started is when it opened; Ended when it closed, zero while it lasts.
	Started, Ended time.Time
	// Cause is why it opened, EndedBy why it closed: Cause constants. A failed probe does
	// not change the cause; an operator who opens it does.
	Cause, EndedBy string
	// Reason and By are of the operator who opened it, if one did.
	Reason, By string
	// Probes counts those answered "rate limited", Wasted all calls answered so.
	Probes, Wasted int
	// Rescheduled counts deferred jobs, as reported by [Breaker.Rescheduled].
	Rescheduled int
	// Instances are those that had a part: an answer or a probe of theirs. At most
	// 50 are named.
	Instances []string
}

type incidentJSON struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Started     *time.Time `json:"started"`
	Ended       *time.Time `json:"ended"`
	Cause       string     `json:"cause"`
	EndedBy     string     `json:"ended_by"`
	Reason      string     `json:"reason"`
	By          string     `json:"by"`
	Probes      int        `json:"probes"`
	Wasted      int        `json:"wasted"`
	Rescheduled int        `json:"rescheduled"`
	Instances   []string   `json:"instances"`
}

// MarshalJSON gives times in RFC 3339, null for none.
func (i Incident) MarshalJSON() ([]byte, error) {
	return json.Marshal(incidentJSON{
		ID: i.ID, Name: i.Name, Started: utc(i.Started), Ended: utc(i.Ended), Cause: i.Cause, EndedBy: i.EndedBy,
		Reason: i.Reason, By: i.By, Probes: i.Probes, Wasted: i.Wasted, Rescheduled: i.Rescheduled,
		Instances: append([]string{}, i.Instances...),
	})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (i *Incident) UnmarshalJSON(data []byte) error {
	var j incidentJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("breaker: incident: %w", err)
	}
	*i = Incident{
		ID: j.ID, Name: j.Name, Started: value(j.Started), Ended: value(j.Ended), Cause: j.Cause, EndedBy: j.EndedBy,
		Reason: j.Reason, By: j.By, Probes: j.Probes, Wasted: j.Wasted, Rescheduled: j.Rescheduled,
		Instances: j.Instances,
	}
	return nil
}

// incident is one as the scripts write it.
type incident struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Started     int64  `json:"started"`
	Ended       int64  `json:"ended"`
	Cause       string `json:"cause"`
	EndedBy     string `json:"ended_by"`
	Reason      string `json:"reason"`
	By          string `json:"by"`
	Probes      int    `json:"probes"`
	Wasted      int    `json:"wasted"`
	Rescheduled int    `json:"rescheduled"`
	Instances   string `json:"instances"`
}

// Incidents returns the last limit incidents of a breaker ("destination" or
// "destination/key"), oldest first, the one that lasts included; all that are kept
// (200, of a key 20) if limit is not above 0.
func Incidents(ctx context.Context, rdb redis.UniversalClient, name string, limit int) ([]Incident, error) {
	return DefaultNamespace.Incidents(ctx, rdb, name, limit)
}

// Incidents is the function Incidents in n.
func (n Namespace) Incidents(ctx context.Context, rdb redis.UniversalClient, name string, limit int) ([]Incident, error) {
	p, err := n.parse(name)
	if err != nil {
		return nil, err
	}
	now, err := n.Get(ctx, rdb, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	last := int64(-1)
	if limit > 0 {
		last = int64(limit) - 1
	}
	entries, err := rdb.LRange(ctx, p.incidents, 0, last).Result()
	if err != nil {
		return nil, unavailable("read incidents of", name, err)
	}
	var out []Incident
	if now.Incident != "" && now.State != Closed {
		out = append(out, now.incident())
	}
	for i, entry := range entries {
		var in incident
		if err := json.Unmarshal([]byte(entry), &in); err != nil {
			return nil, fmt.Errorf("breaker: read incidents of %s: entry %d: %w", name, i, err)
		}
		if in.ID != now.Incident {
			out = append(out, in.incident())
		}
	}
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	slices.Reverse(out)
	return out, nil
}

func (in *incident) incident() Incident {
	return Incident{
		ID: in.ID, Name: in.Name, Started: instant(in.Started), Ended: instant(in.Ended), Cause: in.Cause,
		EndedBy: in.EndedBy, Reason: in.Reason, By: in.By, Probes: in.Probes, Wasted: in.Wasted,
		Rescheduled: in.Rescheduled, Instances: names(in.Instances),
	}
}

// incident is the one that lasts.
func (s Status) incident() Incident {
	return Incident{
		ID: s.Incident, Name: s.Name, Started: s.OpenedAt, Cause: s.IncidentCause, Reason: s.Reason, By: s.TrippedBy,
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
func (c *core) flushRescheduled(ctx context.Context) {
	c.tally.mu.Lock()
	counts := c.tally.counts
	c.tally.counts = nil
	c.tally.mu.Unlock()
	for of, n := range maps.All(counts) {
		ctx, cancel := bounded(ctx)
		_, err := c.run(ctx, of.key, rescheduledScript, nil, of.incident, n)
		cancel()
		if err != nil {
			(&Breaker{core: c, key: of.key}).Rescheduled(of.incident, n)
		}
	}
}
