package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/record"
)

// workerSilence is how long a worker may give no sign of life before it counts as gone.
// It gives one every ten seconds.
const workerSilence = 30 * time.Second

// WorkerInfo is a worker that lives.
type WorkerInfo struct {
	// Name is how the worker is called in the records of jobs.
	Name string `json:"name"`
	// StartedAt is when it began to serve, SeenAt its last sign of life; both on Redis's
	// clock.
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
	// Destinations that it serves, but for Tidegate's own.
	Destinations []string `json:"destinations"`
}

// Workers lists the workers that have given a sign of life in the last 30 seconds, by
// name. Errors: Redis's.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	said, err := c.rdb.HGetAll(ctx, record.WorkersKey).Result()
	if err != nil {
		return nil, fmt.Errorf("jobs: workers: %w", err)
	}
	now, err := c.Now(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]WorkerInfo, 0, len(said))
	for name, text := range said {
		var w record.Worker
		if json.Unmarshal([]byte(text), &w) != nil {
			continue // of a later version of this program, perhaps
		}
		seen := time.UnixMilli(w.SeenAt).UTC()
		if now.Sub(seen) > workerSilence {
			continue
		}
		info := WorkerInfo{Name: name, StartedAt: time.UnixMilli(w.StartedAt).UTC(), SeenAt: seen, Destinations: []string{}}
		for _, d := range w.Destinations {
			if !record.System(d) {
				info.Destinations = append(info.Destinations, d)
			}
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b WorkerInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
