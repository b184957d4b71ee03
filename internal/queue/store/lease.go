package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	extendLeasesScript = script("extend_leases")
	lapsedLeasesScript = script("lapsed_leases")
)

// Lease is the length of a worker's lease of a job.
const Lease = 30 * time.Second

// RunOf is a job and the run that fetched it.
type RunOf struct{ ID, Run string }

// ExtendLeases extends the leases of jobs in flight, from now by Redis's clock. Errors:
// Redis's.
func ExtendLeases(ctx context.Context, rdb redis.Scripter, queue string, lease time.Duration, jobs []RunOf) error {
	keys := []string{LeaseKey(queue)}
	args := []any{queue, lease.Milliseconds()}
	for _, j := range jobs {
		keys = append(keys, TaskKey(queue, j.ID))
		args = append(args, j.ID, j.Run)
	}
	if err := extendLeasesScript.Run(ctx, rdb, keys, args...).Err(); err != nil {
		return fmt.Errorf("extend the leases of %d jobs of %s: %w", len(jobs), queue, err)
	}
	return nil
}

// Lapsed is a job whose lease has lapsed.
type Lapsed struct {
	RunOf
	// End of the lease: unix seconds, as Redis has written them.
	End     string
	Message string // encoded; "" if the job does not exist
}

// LapsedLeases lists jobs whose leases lapsed at least since ago, but for the first skip of
// them. It shortens leases that end later than lease from now: the clock went back. Errors:
// Redis's.
func LapsedLeases(ctx context.Context, rdb redis.Scripter, queue string, lease, since time.Duration, skip, limit int) ([]Lapsed, error) {
	v, err := valuesOf(lapsedLeasesScript.Run(ctx, rdb, []string{LeaseKey(queue)}, queue, since.Milliseconds(), skip, limit, lease.Milliseconds()))
	if err != nil {
		return nil, fmt.Errorf("list lapsed leases of %s: %w", queue, err)
	}
	var out []Lapsed
	for len(v.left) >= 4 {
		out = append(out, Lapsed{RunOf{v.text(), v.text()}, v.text(), v.text()})
	}
	return out, nil
}
