package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// aloneHour is the time whose refusals are counted together. The counts of two hours are kept.
const aloneHour = time.Hour

// RefusedAlone are the jobs of a destination that its API refused while it accepted others, in this
// hour of the clock and the one before.
type RefusedAlone struct {
	Jobs, Refusals, Failed int
	Since                  time.Time // of the first refusal; zero without any
	// Job is the last one, and Text says how often it was refused.
	Job, Text string
}

// refusedAloneKey is the hash of an hour: since (unix ms), jobs, refusals, failed, job, text.
func (n Namespace) refusedAloneKey(destination string, at time.Time) string {
	return n.Key("refused_alone:" + destination + ":" + strconv.FormatInt(at.Truncate(aloneHour).Unix(), 10))
}

// CountRefusedAlone counts a refusal of a job at an instant of Redis's clock, about. first is true for
// the job's first one that was laid to it, failed if it fails with it. Errors: Redis's.
func (n Namespace) CountRefusedAlone(ctx context.Context, rdb redis.UniversalClient, destination, job, text string, at time.Time, first, failed bool) error {
	key := n.refusedAloneKey(destination, at)
	_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		pipe.HSetNX(ctx, key, "since", at.UnixMilli())
		pipe.HIncrBy(ctx, key, "refusals", 1)
		if first {
			pipe.HIncrBy(ctx, key, "jobs", 1)
		}
		if failed {
			pipe.HIncrBy(ctx, key, "failed", 1)
		}
		pipe.HSet(ctx, key, "job", job, "text", text)
		pipe.Expire(ctx, key, 2*aloneHour)
		return nil
	})
	if err != nil {
		return fmt.Errorf("count a job that was refused alone: %w", err)
	}
	return nil
}

// RefusedAlone reads the counts of destinations, in their order, at an instant of Redis's clock. Errors: Redis's.
func (n Namespace) RefusedAlone(ctx context.Context, rdb redis.UniversalClient, destinations []string, at time.Time) ([]RefusedAlone, error) {
	if len(destinations) == 0 {
		return nil, nil
	}
	hashes := make([][2]*redis.MapStringStringCmd, len(destinations))
	_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for i, d := range destinations {
			hashes[i] = [2]*redis.MapStringStringCmd{
				pipe.HGetAll(ctx, n.refusedAloneKey(d, at.Add(-aloneHour))), pipe.HGetAll(ctx, n.refusedAloneKey(d, at)),
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read jobs that were refused alone: %w", err)
	}
	out := make([]RefusedAlone, len(destinations))
	for i, of := range hashes {
		r := &out[i]
		for _, cmd := range of {
			f := cmd.Val()
			if len(f) == 0 {
				continue
			}
			number := func(name string) int { v, _ := strconv.Atoi(f[name]); return v }
			if ms := number("since"); r.Since.IsZero() && ms > 0 {
				r.Since = time.UnixMilli(int64(ms)).UTC()
			}
			r.Jobs, r.Refusals, r.Failed = r.Jobs+number("jobs"), r.Refusals+number("refusals"), r.Failed+number("failed")
			r.Job, r.Text = f["job"], f["text"]
		}
		if r.Refusals > 0 {
			r.Jobs = max(1, r.Jobs) // its first refusal was in an hour before
		}
	}
	return out, nil
}
