package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

type limitsCmds struct {
	Show   limitsShowCmd   `cmd:"" default:"withargs" help:"Show the limits of all known destinations, or of one destination or key."`
	Set    limitsSetCmd    `cmd:"" help:"Set a limit above the configuration, for a time."`
	Unset  limitsUnsetCmd  `cmd:"" help:"End a limit that was set: the configured one holds again."`
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
	if c.Name == "" {
		return nil
	}
	return breakerName(c.Name).Validate()
}

// Run shows limits.
func (c *limitsShowCmd) Run(ctx context.Context, p *Process, s *session) error {
	switch {
	case c.Name != "":
		if _, err := s.knownBreaker(ctx, breakerName(c.Name)); err != nil {
			return err
		}
		found, err := s.Limits(ctx, c.Name)
		if err != nil {
			return err
		}
		if c.json() {
			return p.printJSON(found)
		}
		return c.print(p, []ops.Limits{found}, "")
	case c.json():
		page, err := s.ListLimits(ctx, string(c.Destination), string(c.Cursor), int(c.Limit))
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
	return c.print(p, shown, rest)
}

// mostLimitPages bounds the pages that are read for a table.
const mostLimitPages = 10

// read returns the limits of destinations, each followed by the limits of its keys that hold calls back and of some
// other keys; rest are lines about the rest.
func (c *limitsShowCmd) read(ctx context.Context, s *session, names []string) (shown []ops.Limits, rest string, err error) {
	of := map[string][]ops.Limits{} // by destination: its limits, then its keys' limits
	cursor := ""
	for i := 0; i == 0 || cursor != "" && i < mostLimitPages; i++ {
		page, err := s.ListLimits(ctx, string(c.Destination), cursor, jobs.MaxPage)
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
	urgent := func(l ops.Limits) int {
		if u, known := urgency[l.Name]; known {
			return u
		}
		return explain.Callable
	}
	var lists [][]ops.Limits
	for _, name := range names {
		list := of[name]
		if len(list) == 0 {
			continue // beyond the pages that were read
		}
		slices.SortStableFunc(list[1:], func(a, b ops.Limits) int {
			return cmp.Or(cmp.Compare(urgent(a), urgent(b)), strings.Compare(a.Name, b.Name))
		})
		lists = append(lists, list)
	}
	shown, rest = shorten(lists, int(c.Limit), func(l ops.Limits) string { return l.Name },
		func(l ops.Limits) bool { return urgent(l) < explain.Callable }, "can be called")
	if cursor != "" {
		rest += "not all keys were read; all: -o json\n"
	}
	return shown, rest, nil
}

// print prints limits, the operators' limits among them, and lines about the rest.
func (c *limitsShowCmd) print(p *Process, items []ops.Limits, rest string) error {
	now, overrides, set := time.Now(), "", map[string]ops.Override{}
	type line struct {
		name string
		explain.Limit
	}
	var lines []line
	for _, l := range items {
		limits := explain.LimitsWith(l.Limits, l.Override, l.NamedOverrides, now)
		if l.Override != nil {
			set[l.Name] = *l.Override
		}
		maps.Copy(set, l.NamedOverrides)
		if len(limits) == 0 {
			limits = []explain.Limit{{Allowed: "none known"}}
		}
		for _, w := range limits {
			lines = append(lines, line{l.Name, w})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		overrides += text.OneLine(name+": "+explain.OperatorLimit(set[name], now)) + "\nend it with: tidegate limits unset " + name + "\n"
	}
	return table[line]{
		none: noneKnown, rest: overrides + rest,
		head: []string{"NAME", "SOURCE", "LIMIT", "USED", "RESETS IN", "CONFIDENCE", "SINCE"},
		row: func(l line) []string {
			return []string{l.name, dash(l.Source), dash(l.Allowed), dash(l.Used), dash(l.ResetsIn), dash(l.Confidence), dash(ago(&l.Since, now))}
		},
	}.print(p, c.outputFlag, ops.Page[line]{Items: lines})
}

type limitsSetCmd struct {
	Name   destinationName `arg:"" name:"name" help:"Name of the destination, or of a limit that destinations share."`
	Rate   string          `required:"" placeholder:"5/1s" help:"Windows as in DESTINATION_<i>_RATE, such as 5/1s or 60/1h:5,1000/1d@UTC; off: no limit."`
	For    span            `placeholder:"10m" help:"For this time: 30s, 10m, 2h, 1d. Until it is unset unless given."`
	Reason reason          `placeholder:"TEXT" help:"Shown with the limit, and kept in the audit; at most 500 characters."`
	outputFlag
}

// Validate checks the rate.
func (c *limitsSetCmd) Validate() error {
	if err := ops.CheckRate(c.Rate); err != nil {
		return inputErrorf("--rate: %w", err)
	}
	return nil
}

// Run sets a limit.
func (c *limitsSetCmd) Run(ctx context.Context, p *Process, s *session) error {
	l, err := s.SetLimit(ctx, string(c.Name), c.Rate, time.Duration(c.For), nil, p.why(c.Reason))
	if err != nil {
		return noDestination(err)
	}
	return c.say(p, l, "%s: %s; workers take it up within 2 seconds\nend it with: tidegate limits unset %[1]s\n", l.Name, text.OneLine(explain.OperatorLimit(*l.Override, time.Now())))
}

type limitsUnsetCmd struct {
	Name   destinationName `arg:"" name:"name" help:"Name of the destination, or of a limit that destinations share."`
	Reason reason          `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
	outputFlag
}

// Run ends a limit.
func (c *limitsUnsetCmd) Run(ctx context.Context, p *Process, s *session) error {
	l, found, err := s.UnsetLimit(ctx, string(c.Name), p.why(c.Reason))
	if err != nil {
		return noDestination(err)
	}
	if !found {
		return c.say(p, l, "%s had no limit that was set\n", l.Name)
	}
	return c.say(p, l, "%s: the configured limit holds again, within 2 seconds\n", l.Name)
}

type limitsForgetCmd struct {
	breakerArg
	Reason reason `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
	outputFlag
}

// Run forgets limits.
func (c *limitsForgetCmd) Run(ctx context.Context, p *Process, s *session) error {
	if _, err := s.knownBreaker(ctx, c.Name); err != nil {
		return err
	}
	forgotten, err := s.ForgetLimits(ctx, string(c.Name), p.why(c.Reason))
	if err != nil {
		return err
	}
	now, err := s.Limits(ctx, string(c.Name))
	if err != nil {
		return err
	}
	said := explain.Forgotten(forgotten) + "\n"
	if b, err := s.Breaker(ctx, string(c.Name)); err == nil && b.State != breaker.Closed {
		said += string(c.Name) + " is " + b.State.String() + " still; close it with: tidegate breaker reset " + string(c.Name) + "\n"
	}
	return c.say(p, now, "%s", said)
}
