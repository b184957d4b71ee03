package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
)

type limitsCmds struct {
	Show   limitsShowCmd   `cmd:"" default:"withargs" help:"Show the limits of all known destinations, or of one destination or key."`
	Forget limitsForgetCmd `cmd:"" help:"Forget what was learned of a limit, and what the API announced."`
}

type limitsShowCmd struct {
	Name        string `arg:"" optional:"" name:"name" help:"Name of the destination, or destination/key for the limits of a key."`
	Destination string `placeholder:"D" help:"This destination's limits and those of its keys."`
	Limit       int    `short:"n" default:"100" placeholder:"N" help:"Destinations and keys on a page of JSON, and destinations and limited keys in the table; 1 to 1000. Default: ${default}."`
	Cursor      string `placeholder:"CURSOR" help:"Go on after the page of JSON that printed this cursor."`
	outputFlag
}

// mostLimits is the longest page of limits.
const mostLimits = 1000

// Run shows limits.
func (c *limitsShowCmd) Run(ctx context.Context, p *Process) error {
	if c.Name != "" && (c.Destination != "" || c.Cursor != "") {
		return inputErrorf("give a name, or --destination and --cursor, not both")
	}
	if c.Limit < 1 || c.Limit > mostLimits {
		return inputErrorf("--limit must be from 1 to %d", mostLimits)
	}
	if c.Name != "" {
		return c.showOne(ctx, p)
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	var known []string
	if c.Destination != "" {
		known = []string{c.Destination}
		err = breakerName{c.Destination}.check(ctx, s)
	} else {
		known, err = s.destinations(ctx)
	}
	if err != nil {
		return err
	}
	if !c.json() && c.Cursor == "" && len(known) > 0 {
		return c.printAll(ctx, p, s, known)
	}
	var out page[breaker.Limits]
	out.Items, out.Next, err = s.breakers.ListLimits(ctx, s.rdb, known, c.Cursor, c.Limit)
	if errors.Is(err, breaker.ErrInvalidCursor) {
		return inputErrorf("--cursor: %w", breaker.ErrInvalidCursor)
	}
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if c.json() {
		return p.printJSON(out)
	}
	if len(known) == 0 {
		return p.write([]byte("no destination is known; start one with: tidegate worker\n"))
	}
	rest := ""
	if out.Next != "" {
		rest = "more: --cursor " + out.Next + "\n"
	}
	return printLimits(p, out.Items, rest)
}

// mostLimitPages bounds the pages that are read for a table.
const mostLimitPages = 10

// printAll prints the limits of destinations, each before those of its keys that hold calls back, and of
// some others; the rest is counted.
func (c *limitsShowCmd) printAll(ctx context.Context, p *Process, s *session, known []string) error {
	var all []breaker.Limits
	cursor := ""
	for i := 0; i == 0 || cursor != "" && i < mostLimitPages; i++ {
		items, next, err := s.breakers.ListLimits(ctx, s.rdb, known, cursor, mostLimits)
		if err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		all, cursor = append(all, items...), next
	}
	statuses, err := s.breakers.ListAll(ctx, s.rdb, known)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	now := time.Now()
	urgency := map[string]int{}
	for _, b := range slices.Concat(statuses...) {
		urgency[b.Name] = explain.Urgency(b, now)
	}
	of := map[string][]breaker.Limits{} // by destination, its own first
	for _, l := range all {
		destination, _, ofKey := strings.Cut(l.Name, "/")
		if _, known := urgency[l.Name]; !known && ofKey {
			urgency[l.Name] = explain.Callable
		}
		of[destination] = append(of[destination], l)
	}
	k := newKeyCount(c.Limit)
	names := slices.Compact(slices.Sorted(slices.Values(known)))
	var shown []breaker.Limits
	for _, name := range names[:k.destinations(len(names))] {
		list := of[name]
		if len(list) == 0 {
			continue // beyond the pages that were read
		}
		keys := list[1:]
		slices.SortStableFunc(keys, func(a, b breaker.Limits) int {
			return cmp.Or(cmp.Compare(urgency[a.Name], urgency[b.Name]), strings.Compare(a.Name, b.Name))
		})
		shown = append(shown, list[0])
		for _, l := range keys {
			if k.shows(name, urgency[l.Name] < explain.Callable) {
				shown = append(shown, l)
			}
		}
	}
	rest := k.rest("can be called", "-o json")
	if cursor != "" {
		rest += "not all keys were read; all: -o json\n"
	}
	advice, err := routeAdvice(ctx, s, shown)
	if err != nil {
		return err
	}
	return printLimits(p, shown, advice+rest)
}

func (c *limitsShowCmd) showOne(ctx context.Context, p *Process) error {
	s, err := breakerName{c.Name}.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.breakers.Limits(ctx, s.rdb, c.Name)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if c.json() {
		return p.printJSON(found)
	}
	advice, err := routeAdvice(ctx, s, []breaker.Limits{found})
	if err != nil {
		return err
	}
	return printLimits(p, []breaker.Limits{found}, advice)
}

// routeAdvice is a line for each of the destinations whose API seems to limit one kind of calls by itself.
func routeAdvice(ctx context.Context, s *session, items []breaker.Limits) (string, error) {
	workers, err := s.client.Workers(ctx)
	if err != nil {
		return "", fmt.Errorf("limits: %w", err)
	}
	lines, known := "", map[string]bool{}
	for _, l := range items {
		destination, _, _ := strings.Cut(l.Name, "/")
		if text := explain.LimitedRoute(workers, destination); text != "" && !known[destination] {
			lines += destination + ": " + text + "\n"
		}
		known[destination] = true
	}
	return lines, nil
}

// printLimits prints limits, and lines about the rest.
func printLimits(p *Process, items []breaker.Limits, rest string) error {
	now := time.Now()
	r := newRows()
	r.add("NAME", "SOURCE", "LIMIT", "USED", "RESETS IN", "CONFIDENCE", "SINCE")
	for _, l := range items {
		limits := explain.Limits(l, now)
		for _, w := range limits {
			r.add(l.Name, w.Source, dash(w.Allowed), dash(w.Used), dash(w.ResetsIn), dash(w.Confidence), dash(ago(&w.Since, now)))
		}
		if len(limits) == 0 {
			r.add(l.Name, "-", "none known", "-", "-", "-", "-")
		}
	}
	return r.printWith(p, rest)
}

type limitsForgetCmd struct {
	breakerName
	outputFlag
}

// Run forgets limits.
func (c *limitsForgetCmd) Run(ctx context.Context, p *Process) error {
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	forgotten, err := s.breakers.ForgetLimits(ctx, s.rdb, c.Name, p.operator(hostname()))
	if err != nil {
		return fmt.Errorf("limits forget: %w", err)
	}
	if c.json() {
		now, err := s.breakers.Limits(ctx, s.rdb, c.Name)
		if err != nil {
			return fmt.Errorf("limits forget: %w", err)
		}
		return p.printJSON(now)
	}
	text := explain.Forgotten(forgotten) + "\n"
	if b, err := s.breakers.Get(ctx, s.rdb, c.Name); err == nil && b.State != breaker.Closed {
		text += c.Name + " is " + b.State.String() + " still; close it with: tidegate breaker reset " + c.Name + "\n"
	}
	return p.write([]byte(text))
}
