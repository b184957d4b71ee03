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

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

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
	calls       = store.MinuteCalls
	limited     = store.MinuteLimited
	took        = store.MinuteTook
	backlog     = "backlog"
)

// counted stands for all destinations: its backlog is 0 in the minutes in which backlogs were
// counted, and destinations without jobs have none of their own.
const counted = ""

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

// Read returns for each destination one point for each step from since to until, the oldest
// first, by the clocks of the workers. since is cut to a whole step, which is a minute at least
// and divides an hour or is whole hours. It costs one round trip. Errors: a span that has no
// end, or Redis's.
func Read(ctx context.Context, rdb redis.UniversalClient, ns store.Namespace, destinations []string, since, until time.Time, step time.Duration) ([][]Point, error) {
	step = max(step.Truncate(time.Minute), time.Minute)
	since = since.UTC().Truncate(step)
	if until.Sub(since) > 2*Kept {
		return nil, fmt.Errorf("minutes: %v to %v is more than is kept", since, until)
	}
	first, last := hourOf(since), hourOf(until)
	hours := func(pipe redis.Pipeliner, destination string) (cmds []*redis.MapStringStringCmd) {
		for hour := first; hour <= last; hour++ {
			cmds = append(cmds, pipe.HGetAll(ctx, ns.MinutesKey(destination, hour)))
		}
		return cmds
	}
	var ofAll []*redis.MapStringStringCmd
	found := make([][]*redis.MapStringStringCmd, len(destinations))
	_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		ofAll = hours(pipe, counted)
		for i, d := range destinations {
			found[i] = hours(pipe, d)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("minutes: read: %w", err)
	}
	out := make([][]Point, len(destinations))
	for i, d := range destinations {
		out[i] = []Point{}
		for at := since; at.Before(until); at = at.Add(step) {
			out[i] = append(out[i], Point{At: at, Backlog: -1})
		}
		sum(out[i], found[i], since, step)
		if !store.System(d) { // theirs are not counted
			sum(out[i], ofAll, since, step)
		}
	}
	return out, nil
}

// sum adds the counts of the hours from since on to the points.
func sum(points []Point, hours []*redis.MapStringStringCmd, since time.Time, step time.Duration) {
	for i, cmd := range hours {
		start := time.Unix((hourOf(since)+int64(i))*3600, 0)
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
}

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }
