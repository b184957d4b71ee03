package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
)

type breakerHistoryCmd struct {
	breakerName
	Limit int `short:"n" default:"50" placeholder:"N" help:"How many at most. Default: ${default}; 1000 are kept."`
	outputFlag
}

// Run shows transitions.
func (c *breakerHistoryCmd) Run(ctx context.Context, p *Process) error {
	events, err := lastOf(ctx, p, "history", c.breakerName, c.Limit, breaker.Namespace.History)
	if err != nil {
		return err
	}
	if c.json() {
		return p.printJSON(page[breaker.Event]{Items: append([]breaker.Event{}, events...)})
	}
	if len(events) == 0 {
		return p.write([]byte("no transitions: it has been CLOSED all the time\n"))
	}
	r := newRows()
	r.add("AT", "FROM", "TO", "WHY", "BY", "INCIDENT", "WASTED")
	now := time.Now()
	for _, e := range events {
		why := explain.Cause(e.Cause)
		if e.Reason != "" {
			why += " (" + e.Reason + ")"
		}
		r.add(explain.At(e.At, now), e.From.String(), e.To.String(), why, dash(e.By), dash(e.Incident), strconv.Itoa(e.Wasted))
	}
	return r.print(p)
}

type breakerIncidentsCmd struct {
	breakerName
	Limit int `short:"n" default:"20" placeholder:"N" help:"How many at most. Default: ${default}; 200 are kept, 20 of a key."`
	outputFlag
}

// Run shows incidents.
func (c *breakerIncidentsCmd) Run(ctx context.Context, p *Process) error {
	incidents, err := lastOf(ctx, p, "incidents", c.breakerName, c.Limit, breaker.Namespace.Incidents)
	if err != nil {
		return err
	}
	if c.json() {
		return p.printJSON(page[breaker.Incident]{Items: append([]breaker.Incident{}, incidents...)})
	}
	if len(incidents) == 0 {
		return p.write([]byte("no incidents: it has been CLOSED all the time\n"))
	}
	r := newRows()
	r.add("STARTED", "LASTED", "WHY", "ENDED BY", "PROBES", "WASTED", "RESCHEDULED", "INSTANCES")
	now := time.Now()
	for _, i := range incidents {
		lasted, endedBy := "still lasts", ""
		if !i.Ended.IsZero() {
			lasted, endedBy = explain.Duration(i.Ended.Sub(i.Started)), explain.Cause(i.EndedBy)
		}
		why := explain.Cause(i.Cause)
		if i.Reason != "" {
			why += " (" + i.Reason + ")"
		}
		r.add(explain.At(i.Started, now), lasted, why, dash(endedBy), strconv.Itoa(i.Probes), strconv.Itoa(i.Wasted),
			strconv.Itoa(i.Rescheduled), dash(strings.Join(i.Instances, ", ")))
	}
	return r.print(p)
}

// lastOf reads the last of what is kept of a breaker.
func lastOf[T any](ctx context.Context, p *Process, what string, n breakerName, limit int,
	read func(breaker.Namespace, context.Context, redis.UniversalClient, string, int) ([]T, error),
) ([]T, error) {
	if limit < 1 {
		return nil, inputErrorf("--limit must be at least 1")
	}
	s, err := n.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.close()
	items, err := read(s.breakers, ctx, s.rdb, n.Name, limit)
	if err != nil {
		return nil, fmt.Errorf("breaker %s: %w", what, err)
	}
	return items, nil
}
