// Package minutes keeps per-minute statistics of destinations, for charts. Each worker
// counts in memory and adds its counts to those in Redis every ten seconds, so that a job
// costs no further command.
package minutes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// Kept is how long counts are kept, at least.
const Kept = 25 * time.Hour

// The names of the counts in the fields of the hash of an hour: "<minute>:<name>".
const (
	completed   = "completed"
	failed      = "failed"
	cancelled   = "cancelled"
	expired     = "expired"
	rescheduled = "rescheduled"
	calls       = "calls"
	limited     = "limited"
	backlog     = "backlog"
)

// Point has the counts of the step that begins at At.
type Point struct {
	At time.Time `json:"at"`
	// Jobs that workers finished or rescheduled, calls, and rate-limited calls. Jobs that
	// clients finished are not counted.
	Completed   int `json:"completed"`
	Failed      int `json:"failed"`
	Cancelled   int `json:"cancelled"`
	Expired     int `json:"expired"`
	Rescheduled int `json:"rescheduled"`
	Calls       int `json:"calls"`
	Limited     int `json:"limited"`
	// Backlog is the highest number of unfinished jobs; -1 if it was not counted.
	Backlog int `json:"backlog"`
}

func (p *Point) add(name string, n int) {
	switch name {
	case completed:
		p.Completed += n
	case failed:
		p.Failed += n
	case cancelled:
		p.Cancelled += n
	case expired:
		p.Expired += n
	case rescheduled:
		p.Rescheduled += n
	case calls:
		p.Calls += n
	case limited:
		p.Limited += n
	case backlog:
		p.Backlog = max(p.Backlog, n)
	}
}

// Read returns one point for each step from since to until, the oldest first, by the
// clocks of the workers. since is cut to a whole step, which is a minute at least and
// divides an hour or is whole hours. It costs one round trip. Errors: a span that has no
// end, or Redis's.
func Read(ctx context.Context, rdb redis.UniversalClient, ns store.Namespace, destination string, since, until time.Time, step time.Duration) ([]Point, error) {
	step = max(step.Truncate(time.Minute), time.Minute)
	since = since.UTC().Truncate(step)
	if until.Sub(since) > 2*Kept {
		return nil, fmt.Errorf("minutes: %v to %v is more than is kept", since, until)
	}
	points := []Point{}
	for at := since; at.Before(until); at = at.Add(step) {
		points = append(points, Point{At: at, Backlog: -1})
	}
	if len(points) == 0 {
		return points, nil
	}
	first, last := hourOf(since), hourOf(until)
	cmds := make([]*redis.MapStringStringCmd, 0, last-first+1)
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for hour := first; hour <= last; hour++ {
			cmds = append(cmds, pipe.HGetAll(ctx, ns.MinutesKey(destination, hour)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("minutes: read %s: %w", destination, err)
	}
	for i, cmd := range cmds {
		start := time.Unix((first+int64(i))*3600, 0)
		for field, value := range cmd.Val() {
			minute, name, _ := strings.Cut(field, ":")
			m, err := strconv.Atoi(minute)
			n, err2 := strconv.Atoi(value)
			if err != nil || err2 != nil {
				continue
			}
			at := start.Add(time.Duration(m) * time.Minute)
			if k := int(at.Sub(since) / step); !at.Before(since) && k < len(points) {
				points[k].add(name, n)
			}
		}
	}
	return points, nil
}

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }
