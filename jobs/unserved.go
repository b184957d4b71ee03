package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Unserved is a destination with jobs that no living worker serves: they wait until one
// does, or expire.
type Unserved struct {
	Destination string
	// Backlog is how many of its jobs have not ended.
	Backlog int
	// SeenAt is when a worker last served it; zero if none ever did.
	SeenAt time.Time
}

// mostUnserved bounds the destinations that Unserved counts the jobs of.
const mostUnserved = 100

// Unserved lists the destinations that have jobs and no worker, by name; of very many the
// first hundred. Those that the caller serves itself are left out by except; those that Tidegate itself delivers through are not among them. Errors:
// Redis's.
func (c *Client) Unserved(ctx context.Context, except ...string) ([]Unserved, error) {
	live, err := store.ReadLiveWorkers(ctx, c.rdb)
	if err != nil {
		return nil, fmt.Errorf("jobs: unserved destinations: %w", err)
	}
	served := map[string]bool{}
	for _, d := range except {
		served[d] = true
	}
	for _, w := range live {
		for _, d := range w.Destinations {
			served[d] = true
		}
	}
	queues, err := c.listedQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: unserved destinations: %w", err)
	}
	seen, err := c.readDestinations(ctx)
	if err != nil {
		return nil, err
	}
	var out []Unserved
	looked := 0
	for _, name := range withQueues(nil, queues) {
		if served[name] {
			continue
		}
		if looked++; looked > mostUnserved {
			break
		}
		s, err := c.Survey(ctx, name, 0)
		if err != nil {
			return nil, err
		}
		u := Unserved{Destination: name, SeenAt: seen[name]}
		for status, n := range s.Counts {
			if !status.Final() {
				u.Backlog += n
			}
		}
		if u.Backlog > 0 {
			out = append(out, u)
		}
	}
	return out, nil
}
