package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/words"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
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

// knownBreaker returns the destination of a breaker, which must be known.
func (s *session) knownBreaker(ctx context.Context, name breakerName) (destination string, err error) {
	destination, _, err = s.KnownBreaker(ctx, string(name))
	return destination, noDestination(err)
}

// keysFlags select destinations and keys.
type keysFlags struct {
	Destination destinationFlag `short:"d" placeholder:"D" help:"Only this destination and its keys."`
	Limit       pageSize        `short:"n" default:"100" placeholder:"N" help:"Destinations and keys on a page of JSON, and destinations and limited keys in the table; 1 to 1000. Default: ${default}."`
	Cursor      jsonCursor      `placeholder:"CURSOR" help:"Go on after the page of JSON with this as next."`
	outputFlag
}

// names returns the selected destinations.
func (c *keysFlags) names(ctx context.Context, s *session) ([]string, error) {
	if c.Destination == "" {
		return s.Names(ctx)
	}
	return []string{string(c.Destination)}, noDestination(s.Known(ctx, string(c.Destination)))
}

// noneKnown is printed if there is no destination.
const noneKnown = "no destination is known; start one with: tidegate worker"

// printPage prints a page as JSON.
func printPage[T any](p *Process, page ops.Page[T], err error) error {
	if errors.Is(err, ops.ErrCursor) || errors.Is(err, breaker.ErrInvalidCursor) {
		return inputErrorf("--cursor: %w", err)
	}
	if err != nil {
		return noDestination(err)
	}
	return p.printJSON(page)
}

// mostFreeKeys bounds the keys of a destination that are printed although they can be called.
const mostFreeKeys = 10

// shorten selects the lines of a table of destinations, each before its keys: limit destinations and limit limited
// keys, and some of the keys that can be called. rest are lines about the others, for which are is the predicate,
// such as "are closed".
func shorten[T any](of [][]T, limit int, name func(T) string, limited func(T) bool, are string) (shown []T, rest string) {
	left, hidden, cut := limit, 0, 0
	for _, list := range of[:min(limit, len(of))] {
		shown = append(shown, list[0])
		free, more := 0, 0
		for _, key := range list[1:] {
			switch {
			case limited(key) && left > 0:
				left--
			case limited(key):
				hidden++
				continue
			case free < mostFreeKeys:
				free++
			default:
				more++
				continue
			}
			shown = append(shown, key)
		}
		if more > 0 && cut < limit {
			cut++
			rest += plural(more, "other key", "other keys") + " of " + name(list[0]) + " " + are + "; all: -o json\n"
		}
	}
	if hidden > 0 {
		rest = plural(hidden, "other limited key", "other limited keys") + "; all: -o json\n" + rest
	}
	if others := len(of) - limit; others > 0 {
		rest += plural(others, "other destination", "other destinations") + "; all: -o json\n"
	}
	return shown, rest
}

type breakerListCmd struct{ keysFlags }

// Run lists breakers: each destination, then its keys, limited ones first.
func (c *breakerListCmd) Run(ctx context.Context, p *Process, s *session) error {
	if c.json() {
		page, err := s.Breakers(ctx, string(c.Destination), string(c.Cursor), int(c.Limit))
		return printPage(p, page, err)
	}
	names, err := c.names(ctx, s)
	if err != nil {
		return err
	}
	all, err := s.AllBreakers(ctx, names...)
	if err != nil {
		return err
	}
	workers, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, of := range all {
		explain.LimitedFirst(of[1:], now)
	}
	shown, rest := shorten(all, int(c.Limit), func(b breaker.Status) string { return b.Name },
		func(b breaker.Status) bool { return explain.Urgency(b, now) < explain.Callable }, "met a limit and can be called")
	return table[breaker.Status]{
		none: noneKnown, rest: rest,
		head: []string{"NAME", "STATE", "FAILURES", "DETAIL"},
		row: func(b breaker.Status) []string {
			detail := ops.Next(b, now)
			if u, none := workers.Unreached(b.Name); none {
				detail = strings.TrimSuffix("UNREACHABLE: "+explain.NotReached(u, 0, now)+"; "+detail, "; ")
			}
			return []string{b.Name, b.State.String(), strconv.Itoa(b.Failures), detail}
		},
	}.print(p, c.outputFlag, ops.Page[breaker.Status]{Items: shown})
}

type breakerGetCmd struct {
	breakerArg
	outputFlag
}

// Run shows a breaker.
func (c *breakerGetCmd) Run(ctx context.Context, p *Process, s *session) error {
	destination, err := s.knownBreaker(ctx, c.Name)
	if err != nil {
		return err
	}
	b, err := s.Breaker(ctx, string(c.Name))
	if err != nil {
		return err
	}
	if c.json() {
		return p.printJSON(b)
	}
	workers, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	if u, all := workers.Unreached(destination); all {
		survey, err := s.client.Survey(ctx, destination, 0)
		if err != nil {
			return err
		}
		p.warn(destination + " is unreachable: " + explain.NotReached(u, survey.Counts[jobs.Pending]+survey.Counts[jobs.RetryPending], time.Now()))
	}
	limits, err := s.Limits(ctx, string(c.Name))
	if err != nil {
		return err
	}
	if len(limits.Declared) == 1 && limits.Declared[0].Zone == "" { // the status has it
		limits.Declared = nil
	}
	if len(limits.Announced) < 2 {
		limits.Announced = nil
	}
	windows := breaker.Limits{Name: limits.Name, Declared: limits.Declared, Announced: limits.Announced}
	return c.printBreaker(p, b, explain.LimitsWith(windows, limits.Override, nil, time.Now())...)
}

// handFlags are the flags of what an operator does to a breaker for a time.
type handFlags struct {
	breakerArg
	For    span   `placeholder:"10m" help:"For this time: 30s, 10m, 2h, 1d. Until it is reset unless given."`
	Reason reason `placeholder:"TEXT" help:"Shown with the state, and kept in its history; at most 500 characters."`
	outputFlag
}

// do does an act to the breaker and prints it.
func (c *handFlags) do(ctx context.Context, p *Process, s *session, act ops.BreakerAct) error {
	if _, err := s.knownBreaker(ctx, c.Name); err != nil {
		return err
	}
	b, err := s.ActOnBreaker(ctx, act, string(c.Name), time.Duration(c.For), p.why(c.Reason))
	if err != nil {
		return err
	}
	return c.printBreaker(p, ops.Breaker{Status: b})
}

type breakerTripCmd struct{ handFlags }

// Run opens a breaker.
func (c *breakerTripCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.do(ctx, p, s, ops.Trip)
}

type breakerForceCmd struct {
	handFlags
	State string `arg:"" enum:"open,closed" help:"open: no call is made; closed: calls go out whatever the API sends."`
}

// Run forces a breaker.
func (c *breakerForceCmd) Run(ctx context.Context, p *Process, s *session) error {
	return c.do(ctx, p, s, map[string]ops.BreakerAct{"open": ops.Trip, "closed": ops.Force}[c.State])
}

type breakerResetCmd struct {
	breakerArg
	Reason reason `placeholder:"TEXT" help:"Kept in the audit; at most 500 characters."`
	outputFlag
}

// Run closes a breaker.
func (c *breakerResetCmd) Run(ctx context.Context, p *Process, s *session) error {
	return (&handFlags{breakerArg: c.breakerArg, outputFlag: c.outputFlag, Reason: c.Reason}).do(ctx, p, s, ops.Reset)
}

type breakerHistoryCmd struct {
	breakerArg
	Limit historySize `short:"n" default:"50" placeholder:"N" help:"How many at most. Default: ${default}; 1000 are kept."`
	outputFlag
}

// Run shows transitions.
func (c *breakerHistoryCmd) Run(ctx context.Context, p *Process, s *session) error {
	now := time.Now()
	return printLast(ctx, p, s, c.outputFlag, c.Name, int(c.Limit), "history", s.Transitions, table[breaker.Event]{
		none: "no transitions",
		head: []string{"AT", "FROM", "TO", "WHY", "BY", "INCIDENT", "WASTED"},
		row: func(e breaker.Event) []string {
			return []string{explain.At(e.At, now), e.From.String(), e.To.String(), whyWith(e.Cause, e.Reason), dash(e.By), dash(e.Incident), strconv.Itoa(e.Wasted)}
		},
	})
}

type breakerIncidentsCmd struct {
	breakerArg
	Limit historySize `short:"n" default:"20" placeholder:"N" help:"How many at most. Default: ${default}; 200 are kept, 20 of a key."`
	outputFlag
}

// Run shows incidents.
func (c *breakerIncidentsCmd) Run(ctx context.Context, p *Process, s *session) error {
	now := time.Now()
	return printLast(ctx, p, s, c.outputFlag, c.Name, int(c.Limit), "incidents", s.Incidents, table[breaker.Incident]{
		none: "no incidents",
		head: []string{"STARTED", "LASTED", "WHY", "ENDED BY", "PROBES", "WASTED", "RESCHEDULED", "INSTANCES"},
		row: func(i breaker.Incident) []string {
			lasted, endedBy := "still lasts", ""
			if !i.Ended.IsZero() {
				lasted, endedBy = explain.Duration(i.Ended.Sub(i.Started)), explain.Cause(i.EndedBy)
			}
			return []string{
				explain.At(i.Started, now), lasted, whyWith(i.Cause, i.Reason), dash(endedBy), strconv.Itoa(i.Probes), strconv.Itoa(i.Wasted),
				strconv.Itoa(i.Rescheduled), dash(strings.Join(i.Instances, ", ")),
			}
		},
	})
}

// whyWith words a cause and the operator's reason.
func whyWith(cause, reason string) string {
	if reason == "" {
		return explain.Cause(cause)
	}
	return explain.Cause(cause) + " (" + reason + ")"
}

// printLast prints the last of what is kept of a breaker, and a line about the keys of a destination that are not
// CLOSED.
func printLast[T any](ctx context.Context, p *Process, s *session, o outputFlag, name breakerName, limit int, command string,
	read func(context.Context, string, int) (ops.List[T], error), t table[T],
) error {
	destination, err := s.knownBreaker(ctx, name)
	if err != nil {
		return err
	}
	last, err := read(ctx, string(name), limit)
	if err != nil {
		return err
	}
	none := ": it has been CLOSED all the time"
	if destination == string(name) && !o.json() {
		all, err := s.AllBreakers(ctx, destination)
		if err != nil {
			return err
		}
		keys := all[0][1:]
		text, first := explain.Conditions(keys), ""
		if i := slices.IndexFunc(keys, func(b breaker.Status) bool { return b.State != breaker.Closed }); i >= 0 {
			first = keys[i].Name
		} else if past, err := s.KeyTransitions(ctx, destination, 1000); err != nil {
			return err
		} else if len(past) > 0 {
			text, first = pastIncidents(past), past[0].Name
		} else if i = slices.IndexFunc(keys, func(b breaker.Status) bool { return b.Failures > 0 }); i >= 0 {
			text, first = "calls of "+keys[i].Name+" were refused, too few to open its breaker", keys[i].Name
		}
		if text != "" {
			text += ": tidegate breaker " + command + " " + first + "; all: tidegate breaker list --destination " + destination
			none = " of " + destination + " itself, but of its keys:\n" + text
			t.rest = text + "\n"
		}
	}
	t.none += none
	return t.print(p, o, ops.Page[T]{Items: last.Items})
}

// pastIncidents words how many incidents of keys the transitions are of, and how many calls those wasted.
func pastIncidents(transitions []breaker.Event) string {
	wasted, total := map[string]int{}, 0
	for _, e := range transitions {
		if e.Incident != "" {
			total += max(0, e.Wasted-wasted[e.Incident])
			wasted[e.Incident] = max(e.Wasted, wasted[e.Incident])
		}
	}
	return plural(len(wasted), "incident", "incidents") + " of keys, " + plural(total, "wasted call", "wasted calls") + ", the latest"
}

// printBreaker prints the output of get, trip and reset.
func (o outputFlag) printBreaker(p *Process, b ops.Breaker, windows ...explain.Limit) error {
	if o.json() {
		return p.printJSON(b.Status)
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
	r.addIf("the API", explain.Asked("", b.Status, now))
	if b.State == breaker.Closed && b.Forced != "" {
		until := "it is reset"
		if !b.ForcedUntil.IsZero() {
			until = explain.At(b.ForcedUntil, now)
		}
		r.add("forced", "closed until "+until+"; end it with: tidegate breaker reset "+b.Name)
		r.addIf("by", b.TrippedBy)
		r.addIf("reason", b.Reason)
	}
	if b.SlowStart > 0 {
		r.add("slow start", plural(b.SlowStart, "call", "calls")+" in flight at most; doubles as they succeed, and stays as it is without calls")
	}
	if b.Budget != nil {
		r.add("left", explain.Budget(b.Status))
	}
	if b.Concurrency > 0 {
		r.add("in flight", fmt.Sprintf("%d of %d calls", b.InFlight, b.Concurrency))
	}
	due := ""
	if explain.RateHolds(b.Status, now) {
		due = "in " + explain.Duration(b.Rate.Next.Sub(now)) + ", at " + explain.At(b.Rate.Next, now)
	}
	declared := slices.ContainsFunc(windows, func(w explain.Limit) bool { return w.Source == explain.Declared || w.Source == explain.Override })
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
		r.add("learned limit", explain.LearnedLimit(*b.Learned, now))
	}
	r.add("failures", strconv.Itoa(b.Failures)+" in a row")
	if b.Streak > 0 {
		r.add("in a row", explain.Streak(b.Status))
	}
	if b.SuggestedRate != "" {
		r.add("advice", words.Spacing(b.Name, b.SuggestedRate))
	}
	if !b.LastFailure.IsZero() {
		r.add("last failure", ago(&b.LastFailure, now))
	}
	if alone := b.Alone; alone != nil {
		r.add("refused alone", explain.Alone(*alone, now)+"; see: tidegate get "+alone.Job)
	}
	if b.State != breaker.Closed {
		r.addIf("cause", explain.Why(b.Status, now))
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
