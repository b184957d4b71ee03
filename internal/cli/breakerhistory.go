package cli

import (
	"context"
	"fmt"
	"slices"
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
	events, keys, err := lastOf(ctx, p, "history", c.breakerName, c.Limit, breaker.Namespace.History)
	if err != nil {
		return err
	}
	if c.json() {
		return p.printJSON(page[breaker.Event]{Items: append([]breaker.Event{}, events...)})
	}
	if len(events) == 0 {
		return p.write([]byte("no transitions" + alwaysClosed(c.Name, keys)))
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
	return r.printWith(p, keys)
}

type breakerIncidentsCmd struct {
	breakerName
	Limit int `short:"n" default:"20" placeholder:"N" help:"How many at most. Default: ${default}; 200 are kept, 20 of a key."`
	outputFlag
}

// Run shows incidents.
func (c *breakerIncidentsCmd) Run(ctx context.Context, p *Process) error {
	incidents, keys, err := lastOf(ctx, p, "incidents", c.breakerName, c.Limit, breaker.Namespace.Incidents)
	if err != nil {
		return err
	}
	if c.json() {
		return p.printJSON(page[breaker.Incident]{Items: append([]breaker.Incident{}, incidents...)})
	}
	if len(incidents) == 0 {
		return p.write([]byte("no incidents" + alwaysClosed(c.Name, keys)))
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
	return r.printWith(p, keys)
}

// alwaysClosed ends a line that says that a breaker has opened never; keys is the line about its keys.
func alwaysClosed(name, keys string) string {
	if keys != "" {
		return " of " + name + " itself, but of its keys:\n" + keys
	}
	return ": it has been CLOSED all the time\n"
}

// lastOf reads the last of what is kept of a breaker. keys is a line about the keys of a destination
// that are not CLOSED, "" without one.
func lastOf[T any](ctx context.Context, p *Process, what string, n breakerName, limit int,
	read func(breaker.Namespace, context.Context, redis.UniversalClient, string, int) ([]T, error),
) (items []T, keys string, err error) {
	if limit < 1 {
		return nil, "", inputErrorf("--limit must be at least 1")
	}
	s, err := n.open(ctx, p)
	if err != nil {
		return nil, "", err
	}
	defer s.close()
	if items, err = read(s.breakers, ctx, s.rdb, n.Name, limit); err != nil {
		return nil, "", fmt.Errorf("breaker %s: %w", what, err)
	}
	if strings.Contains(n.Name, "/") {
		return items, "", nil
	}
	list, err := s.breakers.List(ctx, s.rdb, n.Name)
	if err != nil {
		return nil, "", fmt.Errorf("breaker %s: %w", what, err)
	}
	if text := explain.Conditions(list[1:]); text != "" {
		first := list[1+slices.IndexFunc(list[1:], func(b breaker.Status) bool { return b.State != breaker.Closed })]
		keys = fmt.Sprintf("%s: tidegate breaker %s %s; all: tidegate breaker list --destination %s\n", text, what, first.Name, n.Name)
	}
	return items, keys, nil
}
