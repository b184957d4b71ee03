package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	if c.Limit < 1 {
		return inputErrorf("--limit must be at least 1")
	}
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	events, err := breaker.History(ctx, s.rdb, c.Name, c.Limit)
	if err != nil {
		return fmt.Errorf("breaker history: %w", err)
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
		why := causeWords(e.Cause)
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

// Help implements kong.HelpProvider.
func (breakerIncidentsCmd) Help() string {
	return `Example:
  tidegate breaker incidents deviantart

An incident lasts from the opening of a breaker to its closing, failed probes
included. WASTED counts the calls that were answered "rate limited", RESCHEDULED
the jobs that were put off because of it.`
}

// Run shows incidents.
func (c *breakerIncidentsCmd) Run(ctx context.Context, p *Process) error {
	if c.Limit < 1 {
		return inputErrorf("--limit must be at least 1")
	}
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	incidents, err := breaker.Incidents(ctx, s.rdb, c.Name, c.Limit)
	if err != nil {
		return fmt.Errorf("breaker incidents: %w", err)
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
			lasted, endedBy = explain.Duration(i.Ended.Sub(i.Started)), causeWords(i.EndedBy)
		}
		why := causeWords(i.Cause)
		if i.Reason != "" {
			why += " (" + i.Reason + ")"
		}
		r.add(explain.At(i.Started, now), lasted, why, dash(endedBy), strconv.Itoa(i.Probes), strconv.Itoa(i.Wasted),
			strconv.Itoa(i.Rescheduled), dash(strings.Join(i.Instances, ", ")))
	}
	return r.print(p)
}
