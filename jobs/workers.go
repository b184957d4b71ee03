package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// WorkerInfo is a live worker.
type WorkerInfo struct {
	Name string `json:"name" doc:"How it is called in the records of jobs." example:"host:4711"`
	// StartedAt is when it started, SeenAt its last heartbeat; both on Redis's clock.
	StartedAt time.Time `json:"started_at" doc:"When it began to serve, by Redis's clock." example:"2030-01-31T08:00:00Z"`
	SeenAt    time.Time `json:"seen_at" doc:"Its last heartbeat, by Redis's clock." example:"2030-01-31T14:35:00Z"`
	// Destinations that it serves, without Tidegate's own.
	Destinations []string `json:"destinations" doc:"What it serves." example:"[\"deviantart\"]"`
	// Unreachable are the destinations that its calls do not leave for, by name; nil for
	// none.
	Unreachable map[string]UnreachableInfo `json:"unreachable,omitempty" doc:"Destinations that its calls do not leave for, by name; absent: none." example:"{\"deviantart\":{\"since\":\"2030-01-31T14:35:00Z\",\"problem\":\"dial tcp: lookup api.example: no such host\"}}"`
	// Pools are the names of the tokens that its calls choose from, by destination; nil for none.
	Pools map[string][]string `json:"pools,omitempty" doc:"Names of the tokens that its calls choose from, by destination with a pool of tokens; absent: none." example:"{\"deviantart\":[\"app-1\",\"app-2\"]}"`
	// Doubts are the responses of the last hour whose status may not say what they mean, and that no
	// answer rule decided, by destination; nil for none.
	Doubts map[string][]Doubt `json:"doubts,omitempty" doc:"Responses of the last hour whose status may not say what they mean, and that no answer rule decided, by destination; absent: none." example:"{\"deviantart\":[{\"kind\":\"error\",\"count\":12,\"at\":\"2030-01-31T14:35:00Z\",\"sign\":\"\\\"ok\\\": false\",\"rule\":\"when: status == 200 && body.ok == false, then: fail\"}]}"`
	// ConfigVersion is a hash of the destinations file that it publishes by, ConfigProblem why it cannot take up the
	// file as it is now.
	ConfigVersion string `json:"config_version,omitempty" doc:"A hash of the destinations file that it publishes by; absent: it has none." example:"a1b2c3d4"`
	ConfigProblem string `json:"config_problem,omitempty" doc:"Why it cannot take up the destinations file as it is now, while the settings before hold; absent: nothing is wrong." example:"line 3, column 5: tmeout is no setting"`
}

// Doubt is a kind of doubtful responses of a destination.
type Doubt struct {
	// Kind is error: a 2xx that looks like an error, or limit: a 4xx that names a rate limit.
	Kind  string    `json:"kind" doc:"error: a 2xx whose body looks like an error, and whose job completed. limit: a 4xx whose body names a rate limit, and whose job failed." enum:"error,limit" example:"error"`
	Count int       `json:"count" doc:"Responses since there was an hour without one." example:"12"`
	At    time.Time `json:"at" doc:"When the last one came, by Redis's clock." example:"2030-01-31T14:35:00Z"`
	Sign  string    `json:"sign" doc:"What the body of the last one has." example:"\"ok\": false"`
	Rule  string    `json:"rule" doc:"The answer rule that would read it." example:"when: status == 200 && body.ok == false, then: fail"`
}

// Doubts are the doubtful responses of a destination to all workers.
func (all Workers) Doubts(destination string) []Doubt {
	var out []Doubt
	for _, w := range all {
		for _, d := range w.Doubts[destination] {
			i := slices.IndexFunc(out, func(o Doubt) bool { return o.Kind == d.Kind })
			if i < 0 {
				out = append(out, d)
				continue
			}
			d.Count += out[i].Count
			if d.At.Before(out[i].At) {
				d.At, d.Sign, d.Rule = out[i].At, out[i].Sign, out[i].Rule
			}
			out[i] = d
		}
	}
	return out
}

// UnreachableInfo says since when, on Redis's clock, and why the calls of a worker do not leave.
type UnreachableInfo struct {
	Since   time.Time `json:"since" doc:"When calls stopped leaving, by Redis's clock." example:"2030-01-31T14:35:00Z"`
	Problem string    `json:"problem" doc:"Why the latest call did not leave." example:"dial tcp: lookup api.example: no such host"`
}

// Workers are workers of the fleet.
type Workers []WorkerInfo

// Unreached reports whether none of the workers that serve the destination reaches it: their
// calls do not leave. It returns the earliest info. It is false without workers.
func (all Workers) Unreached(destination string) (first UnreachableInfo, unreached bool) {
	for _, w := range all {
		if !slices.Contains(w.Destinations, destination) {
			continue
		}
		u, ok := w.Unreachable[destination]
		if !ok {
			return UnreachableInfo{}, false
		}
		if !unreached || u.Since.Before(first.Since) {
			first, unreached = u, true
		}
	}
	return first, unreached
}

// Pool returns the names of the tokens that the destination's calls choose from, as the worker with the latest
// heartbeat has them; nil without a pool.
func (all Workers) Pool(destination string) (members []string) {
	var seen time.Time
	for _, w := range all {
		if slices.Contains(w.Destinations, destination) && w.SeenAt.After(seen) {
			seen, members = w.SeenAt, w.Pools[destination]
		}
	}
	return members
}

// Serve reports whether one of the workers serves the destination.
func (all Workers) Serve(destination string) bool {
	return slices.ContainsFunc(all, func(w WorkerInfo) bool { return slices.Contains(w.Destinations, destination) })
}

// Workers lists the workers with a heartbeat in the last 30 seconds, by name. Errors:
// Redis's.
func (c *Client) Workers(ctx context.Context) (Workers, error) {
	live, err := c.ns.ReadLiveWorkers(ctx, c.rdb)
	if err != nil {
		return nil, fmt.Errorf("jobs: workers: %w", err)
	}
	out := make(Workers, 0, len(live))
	for name, w := range live {
		info := WorkerInfo{Name: name, StartedAt: time.UnixMilli(w.StartedAt).UTC(), SeenAt: time.UnixMilli(w.SeenAt).UTC(), Destinations: []string{}, Pools: w.Pools, ConfigVersion: w.ConfigVersion, ConfigProblem: w.ConfigProblem}
		for _, d := range w.Destinations {
			if !store.System(d) {
				info.Destinations = append(info.Destinations, d)
			}
		}
		for d, u := range w.Unreachable {
			if info.Unreachable == nil {
				info.Unreachable = map[string]UnreachableInfo{}
			}
			info.Unreachable[d] = UnreachableInfo{Since: time.UnixMilli(u.Since).UTC(), Problem: u.Problem}
		}
		for destination, doubts := range w.Doubts {
			if info.Doubts == nil {
				info.Doubts = map[string][]Doubt{}
			}
			for _, d := range doubts {
				info.Doubts[destination] = append(info.Doubts[destination], Doubt{Kind: d.Kind, Count: d.Count, At: time.UnixMilli(d.At).UTC(), Sign: d.Sign, Rule: d.Rule})
			}
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b WorkerInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Disagreements compares the live workers: the settings of each destination but its
// concurrency, their clocks, which may be 5 s from Redis's, and the destinations file. Redis keeps a hash of each
// setting, never the setting. Errors: Redis's.
func (c *Client) Disagreements(ctx context.Context) ([]store.Disagreement, error) {
	live, err := c.ns.ReadLiveWorkers(ctx, c.rdb)
	if err != nil {
		return nil, fmt.Errorf("jobs: compare workers: %w", err)
	}
	return store.Disagreements(live), nil
}
