package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/ops"
)

type limitsCmds struct {
	Show   limitsShowCmd   `cmd:"" default:"withargs" help:"Show the limits of all known destinations, or of one destination or key."`
	Forget limitsForgetCmd `cmd:"" help:"Forget what was learned of a limit, and what the API announced."`
}

type limitsShowCmd struct {
	Name string `arg:"" optional:"" name:"name" help:"Name of the destination, or destination/key for the limits of a key."`
	keysFlags
}

// Validate checks the name, and that it is alone.
func (c *limitsShowCmd) Validate() error {
	if c.Name != "" && (c.Destination != "" || c.Cursor != "") {
		return inputErrorf("give a name, or --destination and --cursor, not both")
	}
	if err := c.keysFlags.Validate(); err != nil {
		return err
	}
	return (&breakerName{c.Name}).Validate()
}

// Run shows limits.
func (c *limitsShowCmd) Run(ctx context.Context, p *Process, s *session) error {
	switch {
	case c.Name != "":
		if _, err := (&breakerName{c.Name}).destination(ctx, s); err != nil {
			return err
		}
		found, err := s.Limits(ctx, c.Name)
		if err != nil {
			return err
		}
		if c.json() {
			return p.printJSON(found)
		}
		return c.print(ctx, p, s, []breaker.Limits{found}, "")
	case c.json():
		page, err := s.ListLimits(ctx, c.Destination, c.Cursor, c.Limit)
		return printPage(p, page, err)
	}
	names, err := c.names(ctx, s)
	if err != nil {
		return err
	}
	shown, rest, err := c.read(ctx, s, names)
	if err != nil {
		return err
	}
	return c.print(ctx, p, s, shown, rest)
}

// mostLimitPages bounds the pages that are read for a table.
const mostLimitPages = 10

// read returns the limits of destinations, each before those of its keys that hold calls back, and of some
// others; rest are lines about the rest.
func (c *limitsShowCmd) read(ctx context.Context, s *session, names []string) (shown []breaker.Limits, rest string, err error) {
	of := map[string][]breaker.Limits{} // by destination, its limits before those of its keys
	cursor := ""
	for i := 0; i == 0 || cursor != "" && i < mostLimitPages; i++ {
		page, err := s.ListLimits(ctx, c.Destination, cursor, mostListed)
		if err != nil {
			return nil, "", err
		}
		cursor = page.Next
		for _, l := range page.Items {
			destination, _, _ := strings.Cut(l.Name, "/")
			of[destination] = append(of[destination], l)
		}
	}
	breakers, err := s.AllBreakers(ctx, names...)
	if err != nil {
		return nil, "", err
	}
	now, urgency := time.Now(), map[string]int{}
	for _, b := range slices.Concat(breakers...) {
		urgency[b.Name] = explain.Urgency(b, now)
	}
	urgent := func(l breaker.Limits) int {
		if u, known := urgency[l.Name]; known {
			return u
		}
		return explain.Callable
	}
	var lists [][]breaker.Limits
	for _, name := range names {
		list := of[name]
		if len(list) == 0 {
			continue // beyond the pages that were read
		}
		slices.SortStableFunc(list[1:], func(a, b breaker.Limits) int {
			return cmp.Or(cmp.Compare(urgent(a), urgent(b)), strings.Compare(a.Name, b.Name))
		})
		lists = append(lists, list)
	}
	shown, rest = shorten(lists, c.Limit, func(l breaker.Limits) string { return l.Name },
		func(l breaker.Limits) bool { return urgent(l) < explain.Callable }, "can be called")
	if cursor != "" {
		rest += "not all keys were read; all: -o json\n"
	}
	return shown, rest, nil
}

// print prints limits, advice about destinations whose API seems to limit one kind of calls by itself, and lines
// about the rest.
func (c *limitsShowCmd) print(ctx context.Context, p *Process, s *session, items []breaker.Limits, rest string) error {
	workers, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	now, advice, advised := time.Now(), "", map[string]bool{}
	type line struct {
		name string
		explain.Limit
	}
	var lines []line
	for _, l := range items {
		limits := explain.Limits(l, now)
		if len(limits) == 0 {
			limits = []explain.Limit{{Allowed: "none known"}}
		}
		for _, w := range limits {
			lines = append(lines, line{l.Name, w})
		}
		destination, _, _ := strings.Cut(l.Name, "/")
		if text := explain.LimitedRoute(workers, destination); text != "" && !advised[destination] {
			advice += destination + ": " + text + "\n"
		}
		advised[destination] = true
	}
	return table[line]{
		none: noneKnown, rest: advice + rest,
		head: []string{"NAME", "SOURCE", "LIMIT", "USED", "RESETS IN", "CONFIDENCE", "SINCE"},
		row: func(l line) []string {
			return []string{l.name, dash(l.Source), dash(l.Allowed), dash(l.Used), dash(l.ResetsIn), dash(l.Confidence), dash(ago(&l.Since, now))}
		},
	}.print(p, c.outputFlag, ops.Page[line]{Items: lines})
}

type limitsForgetCmd struct {
	breakerName
	outputFlag
}

// Run forgets limits.
func (c *limitsForgetCmd) Run(ctx context.Context, p *Process, s *session) error {
	if _, err := c.destination(ctx, s); err != nil {
		return err
	}
	forgotten, err := s.ForgetLimits(ctx, c.Name, p.why(""))
	if err != nil {
		return err
	}
	now, err := s.Limits(ctx, c.Name)
	if err != nil {
		return err
	}
	text := explain.Forgotten(forgotten) + "\n"
	if b, err := s.Breaker(ctx, c.Name); err == nil && b.State != breaker.Closed {
		text += c.Name + " is " + b.State.String() + " still; close it with: tidegate breaker reset " + c.Name + "\n"
	}
	return c.say(p, now, "%s", text)
}
