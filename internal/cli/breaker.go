package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/explain/words"
	"github.com/tidegate/tidegate/jobs"
)

type breakerCmds struct {
	List    breakerListCmd    `cmd:"" help:"List the breakers of all known destinations."`
	Get     breakerGetCmd     `cmd:"" help:"Show a breaker: state, countdown, why, since when."`
	Trip    breakerTripCmd    `cmd:"" help:"Open a breaker by hand: no worker calls the destination."`
	Reset   breakerResetCmd   `cmd:"" help:"Close a breaker by hand: jobs flow again."`
	Force   breakerForceCmd   `cmd:"" help:"Keep a breaker open or closed by hand, whatever the API sends."`
	History breakerHistoryCmd `cmd:"" help:"Show a breaker's last transitions, oldest first."`

	Incidents breakerIncidentsCmd `cmd:"" help:"Show a breaker's last incidents, from opening to closing."`
}

// breakerName is the argument that names a breaker.
type breakerName struct {
	Name string `arg:"" name:"name" help:"Name of the destination, or destination/key for the breaker of a key."`
}

// check refuses names that no destination can have, and unknown destinations.
func (n breakerName) check(ctx context.Context, s *session) error {
	destination, key, keyed := strings.Cut(n.Name, "/")
	if !jobs.ValidDestination(destination) {
		return &inputError{badDestination(destination)}
	}
	if _, _, err := breaker.ParseName(n.Name); err != nil {
		if keyed && key == "" {
			return inputErrorf("%q: the key after the slash is missing", clip(n.Name, 80))
		}
		return inputErrorf("%q: a key has 1 to 128 characters: letters, digits and ._:@-, beginning with a letter or digit", clip(n.Name, 80))
	}
	names, err := s.destinationsWith(ctx, destination)
	if err != nil {
		return fmt.Errorf("breaker: %w", err)
	}
	if !slices.Contains(names, destination) {
		return noDestination(destination, names)
	}
	return nil
}

// open connects and checks the name.
func (n breakerName) open(ctx context.Context, p *Process) (*session, error) {
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.check(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

type breakerListCmd struct {
	Destination string `placeholder:"D" help:"Only this destination's breaker and those of its keys."`
	Limit       int    `short:"n" default:"100" placeholder:"N" help:"Breakers on a page of JSON, and destinations and limited keys in the table; 1 to 1000. Default: ${default}."`
	Cursor      string `placeholder:"CURSOR" help:"Go on after the page of JSON with this as next."`
	outputFlag
}

// Run lists breakers.
func (c *breakerListCmd) Run(ctx context.Context, p *Process) error {
	if c.Limit < 1 || c.Limit > mostBreakers {
		return inputErrorf("--limit must be from 1 to %d", mostBreakers)
	}
	if c.Cursor != "" && !c.json() {
		return inputErrorf("--cursor is for pages of JSON; add -o json")
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	var known []string
	if c.Destination != "" {
		if err := (breakerName{c.Destination}).check(ctx, s); err != nil {
			return err
		}
		known = []string{c.Destination}
	} else if known, err = s.destinations(ctx); err != nil {
		return fmt.Errorf("breaker list: %w", err)
	}
	all, err := s.breakers.ListAll(ctx, s.rdb, known)
	if err != nil {
		return fmt.Errorf("breaker list: %w", err)
	}
	now := time.Now()
	if c.json() {
		var out page[breaker.Status]
		if out.Items, out.Next, err = explain.PageOfBreakers(slices.Concat(all...), c.Cursor, c.Limit, now); err != nil {
			return inputErrorf("--cursor: %w", err)
		}
		return p.printJSON(out)
	}
	if len(known) == 0 {
		return p.write([]byte("no destination is known; start one with: tidegate worker\n"))
	}
	workers, err := s.client.Workers(ctx)
	if err != nil {
		return fmt.Errorf("breaker list: %w", err)
	}
	return c.print(p, all, workers, now)
}

// print prints the breakers of destinations, each before those of its keys, limited ones first.
func (c *breakerListCmd) print(p *Process, all [][]breaker.Status, workers jobs.Workers, now time.Time) error {
	r := newRows()
	r.add("NAME", "STATE", "FAILURES", "DETAIL")
	k := newKeyCount(c.Limit)
	for _, of := range all[:k.destinations(len(all))] {
		detail := breakerDetail(of[0], now)
		if u, none := workers.Unreached(of[0].Name); none {
			detail = strings.TrimSuffix("UNREACHABLE: "+explain.NotReached(u, 0, now)+"; "+detail, "; ")
		}
		r.add(of[0].Name, of[0].State.String(), strconv.Itoa(of[0].Failures), detail)
		keys := of[1:]
		explain.LimitedFirst(keys, now)
		for _, b := range keys {
			if k.shows(of[0].Name, explain.Urgency(b, now) < explain.Callable) {
				r.add(b.Name, b.State.String(), strconv.Itoa(b.Failures), breakerDetail(b, now))
			}
		}
	}
	return r.printWith(p, k.rest("met a limit and can be called", "-o json"))
}

// mostBreakers is the longest page of breakers.
const mostBreakers = 1000

// breakerDetail returns what happens next, in short.
func breakerDetail(b breaker.Status, now time.Time) string {
	switch {
	case b.UntilReset:
		return "opened by hand until it is reset"
	case b.State == breaker.Open:
		return "reopens in " + explain.Duration(b.Remaining) + ", at " + explain.At(b.OpenUntilRedis, now)
	case b.State == breaker.HalfOpen && b.ProbeBy != "":
		return "one probe is under way, by " + b.ProbeBy
	case b.State == breaker.HalfOpen:
		return "the next call is the probe"
	case b.Forced != "":
		return "kept closed by hand" + forcedUntil(b, now)
	case b.SlowStart > 0:
		return fmt.Sprintf("slow start: %d in flight at most", b.SlowStart)
	case b.Budget != nil:
		return explain.Budget(b)
	case explain.ConcurrencyHolds(b):
		return explain.InFlight(b)
	case explain.RateHolds(b, now):
		return explain.NextByRate(b, now)
	}
	return ""
}

// forcedUntil returns how long a breaker is kept closed.
func forcedUntil(b breaker.Status, now time.Time) string {
	if b.ForcedUntil.IsZero() {
		return " until it is reset"
	}
	return " until " + explain.At(b.ForcedUntil, now)
}

type breakerGetCmd struct {
	breakerName
	outputFlag
}

// Run shows a breaker.
func (c *breakerGetCmd) Run(ctx context.Context, p *Process) error {
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := explain.ReadBreaker(ctx, s.rdb, s.client, c.Name)
	if err != nil {
		return fmt.Errorf("breaker get: %w", err)
	}
	if c.json() {
		return p.printJSON(b)
	}
	destination, _, _ := strings.Cut(c.Name, "/")
	workers, err := s.client.Workers(ctx)
	if err != nil {
		return fmt.Errorf("breaker get: %w", err)
	}
	if u, all := workers.Unreached(destination); all {
		survey, err := s.client.Survey(ctx, destination, 0)
		if err != nil {
			return fmt.Errorf("breaker get: %w", err)
		}
		p.warn(destination + " is unreachable: " + explain.NotReached(u, survey.Counts[jobs.Pending]+survey.Counts[jobs.RetryPending], time.Now()))
	}
	limits, err := s.breakers.Limits(ctx, s.rdb, c.Name)
	if err != nil {
		return fmt.Errorf("breaker get: %w", err)
	}
	if len(limits.Declared) == 1 && limits.Declared[0].Zone == "" { // the status has it
		limits.Declared = nil
	}
	if len(limits.Announced) < 2 {
		limits.Announced = nil
	}
	windows := breaker.Limits{Declared: limits.Declared, Announced: limits.Announced}
	return c.printBreaker(p, b.Status, breakerNotes{b.Alone, explain.LimitedRoute(workers, destination)}, explain.Limits(windows, time.Now())...)
}

// breakerNotes are what get shows of a destination beside its status.
type breakerNotes struct {
	alone *jobs.RefusedAlone
	route string // advice, "" for none
}

// printBreaker is the output of get, trip and reset.
func (o outputFlag) printBreaker(p *Process, b breaker.Status, notes breakerNotes, windows ...explain.Limit) error {
	if o.json() {
		return p.printJSON(b)
	}
	now := time.Now()
	r := newRows()
	r.add("breaker", b.Name)
	r.add("state", b.State.String())
	switch {
	case b.UntilReset:
		r.add("reopens", "never by itself; close it with: tidegate breaker reset "+b.Name)
	case b.State == breaker.Open:
		r.add("reopens", "in "+explain.Duration(b.Remaining)+", at "+explain.At(b.OpenUntilRedis, now))
		r.add("next probe", "then, by the first worker that has a job")
	case b.State == breaker.HalfOpen && b.ProbeBy != "":
		r.add("next probe", "under way, by "+b.ProbeBy+", until "+explain.At(b.ProbeUntil, now)+" at the latest")
	case b.State == breaker.HalfOpen:
		r.add("next probe", "now, by the first worker that has a job")
	}
	if b.State == breaker.Closed && b.Forced != "" {
		r.add("forced", "closed"+forcedUntil(b, now)+"; end it with: tidegate breaker reset "+b.Name)
		r.addIf("by", b.TrippedBy)
		r.addIf("reason", b.Reason)
	}
	if b.SlowStart > 0 {
		r.add("slow start", strconv.Itoa(b.SlowStart)+" calls in flight at most; doubles as they succeed, and stays as it is without calls")
	}
	if b.Budget != nil {
		r.add("left", explain.Budget(b))
	}
	if b.Concurrency > 0 {
		r.add("in flight", fmt.Sprintf("%d of %d calls", b.InFlight, b.Concurrency))
	}
	due := ""
	if explain.RateHolds(b, now) {
		due = "in " + explain.Duration(b.Rate.Next.Sub(now)) + ", at " + explain.At(b.Rate.Next, now)
	}
	declared := slices.ContainsFunc(windows, func(w explain.Limit) bool { return w.Source == explain.Declared })
	switch {
	case declared:
		r.addIf("next call", due)
	case b.Rate != nil:
		text := explain.Rate(*b.Rate)
		if b.Rate.Burst > 1 {
			text += ", " + strconv.Itoa(b.Rate.Burst) + " at once"
		}
		if due != "" {
			text += "; the next is due " + due
		}
		r.add("rate", text)
	}
	for _, l := range windows {
		text := cmp.Or(l.Allowed, "one window")
		if l.Used != "" {
			text += "; used " + l.Used
		}
		if l.ResetsIn != "" {
			text += "; resets in " + l.ResetsIn
		}
		r.add(l.Source, text)
	}
	if b.Learned != nil {
		r.add("learned limit", explain.LearnedLimit(*b.Learned))
	}
	r.add("failures", strconv.Itoa(b.Failures)+" in a row")
	if b.Streak > 0 {
		r.add("in a row", explain.Streak(b))
	}
	if b.SuggestedRate != "" {
		r.add("advice", words.Spacing(b.Name, b.SuggestedRate))
	}
	if !b.LastFailure.IsZero() {
		r.add("last failure", ago(&b.LastFailure, now))
	}
	r.addIf("advice", notes.route)
	if alone := notes.alone; alone != nil {
		r.add("refused alone", explain.Alone(*alone, now)+"; see: tidegate get "+alone.Job)
	}
	if b.State != breaker.Closed {
		r.addIf("cause", explain.Why(b, now))
		r.addIf("by", b.TrippedBy)
		r.addIf("reason", b.Reason)
		if !b.OpenedAt.IsZero() {
			r.add("since", ago(&b.OpenedAt, now))
		}
		r.add("failed probes", strconv.Itoa(b.Probes))
		r.add("wasted calls", strconv.Itoa(b.Wasted))
		r.add("rescheduled", explain.Count(b.Rescheduled, "job", "jobs"))
		r.addIf("instances", strings.Join(b.Instances, ", "))
		r.addIf("incident", b.Incident)
	}
	return r.print(p)
}
