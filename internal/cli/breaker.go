package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

type breakerCmds struct {
	List    breakerListCmd    `cmd:"" help:"List the breakers of all known destinations."`
	Get     breakerGetCmd     `cmd:"" help:"Show a breaker: state, countdown, why, since when."`
	Trip    breakerTripCmd    `cmd:"" help:"Open a breaker by hand: no worker calls the destination."`
	Reset   breakerResetCmd   `cmd:"" help:"Close a breaker by hand: jobs flow at once."`
	History breakerHistoryCmd `cmd:"" help:"Show a breaker's last transitions, oldest first."`
}

// breakerName is the argument that names a breaker.
type breakerName struct {
	Name string `arg:"" name:"name" help:"Name of the destination."`
}

// maxTripReason is what breaker.Trip accepts, in characters.
const maxTripReason = 500

// check refuses names that are no destination's, and destinations that nobody
// knows.
func (n breakerName) check(ctx context.Context, s *session) error {
	if strings.Contains(n.Name, "/") {
		return inputErrorf("%q names a key's breaker; keys are not supported by this version yet", clip(n.Name, 80))
	}
	if !jobs.ValidDestination(n.Name) {
		return &inputError{badDestination(n.Name)}
	}
	names, err := s.destinations(ctx)
	if err != nil {
		return fmt.Errorf("breaker: %w", err)
	}
	if !slices.Contains(names, n.Name) {
		return noDestination(n.Name, names)
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

type breakerListCmd struct{ outputFlag }

// Run lists breakers.
func (c *breakerListCmd) Run(ctx context.Context, p *Process) error {
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	known, err := s.client.Destinations(ctx)
	if err != nil {
		return fmt.Errorf("breaker list: %w", err)
	}
	out := page[breaker.Status]{Items: make([]breaker.Status, len(known))}
	for i, d := range known {
		if out.Items[i], err = breaker.Get(ctx, s.rdb, d.Name); err != nil {
			return fmt.Errorf("breaker list: %w", err)
		}
	}
	if c.json() {
		return p.printJSON(out)
	}
	if len(known) == 0 {
		return p.write([]byte("no destination is known; start one with: tidegate worker\n"))
	}
	r := newRows()
	r.add("NAME", "STATE", "FAILURES", "DETAIL")
	now := time.Now()
	for _, b := range out.Items {
		r.add(b.Name, b.State.String(), strconv.Itoa(b.Failures), breakerDetail(b, now))
	}
	return r.print(p)
}

// breakerDetail says in a few words what comes next.
func breakerDetail(b breaker.Status, now time.Time) string {
	switch {
	case b.UntilReset():
		return "opened by hand until it is reset"
	case b.State == breaker.Open:
		return "reopens in " + explain.Duration(b.Remaining) + ", at " + explain.At(b.OpenUntilRedis, now)
	case b.State == breaker.HalfOpen && b.ProbeBy != "":
		return "one probe is under way, by " + b.ProbeBy
	case b.State == breaker.HalfOpen:
		return "the next call is the probe"
	}
	return ""
}

type breakerGetCmd struct {
	breakerName
	outputFlag
}

// Help implements kong.HelpProvider.
func (breakerGetCmd) Help() string {
	return `Example:
  tidegate breaker get deviantart

CLOSED lets all calls through. OPEN lets none through until its time has come.
HALF_OPEN lets one call of the whole fleet through, the probe: its success closes
the breaker, another 429 opens it again.`
}

// Run shows a breaker.
func (c *breakerGetCmd) Run(ctx context.Context, p *Process) error {
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := breaker.Get(ctx, s.rdb, c.Name)
	if err != nil {
		return fmt.Errorf("breaker get: %w", err)
	}
	return c.printBreaker(p, b)
}

// printBreaker is the output of get, trip and reset.
func (o outputFlag) printBreaker(p *Process, b breaker.Status) error {
	if o.json() {
		return p.printJSON(b)
	}
	now := time.Now()
	r := newRows()
	r.add("breaker", b.Name)
	r.add("state", b.State.String())
	switch {
	case b.UntilReset():
		r.add("reopens", "never by itself; close it with: tidegate breaker reset "+b.Name)
	case b.State == breaker.Open:
		r.add("reopens", "in "+explain.Duration(b.Remaining)+", at "+explain.At(b.OpenUntilRedis, now))
		r.add("next probe", "then, by the first worker that has a job")
	case b.State == breaker.HalfOpen && b.ProbeBy != "":
		r.add("next probe", "under way, by "+b.ProbeBy+", until "+explain.At(b.ProbeUntil, now)+" at the latest")
	case b.State == breaker.HalfOpen:
		r.add("next probe", "now, by the first worker that has a job")
	}
	r.add("failures", strconv.Itoa(b.Failures)+" in a row")
	if !b.LastFailure.IsZero() {
		r.add("last failure", ago(&b.LastFailure, now))
	}
	if b.State != breaker.Closed {
		r.addIf("cause", causeWords(b.Cause))
		r.addIf("by", b.TrippedBy)
		r.addIf("reason", b.Reason)
		if !b.OpenedAt.IsZero() {
			r.add("since", ago(&b.OpenedAt, now))
		}
		r.add("failed probes", strconv.Itoa(b.Probes))
		r.add("wasted calls", strconv.Itoa(b.Wasted))
		r.addIf("incident", b.Incident)
	}
	return r.print(p)
}

var causeTexts = map[string]string{
	breaker.CauseThreshold: "too many rate-limited answers in a row",
	breaker.CauseHint:      "the API said how long to wait",
	breaker.CauseProbe:     "the probe was rate-limited",
	breaker.CauseManual:    "opened by hand",
	breaker.CauseCooldown:  "its time had come",
	breaker.CauseSuccess:   "the probe succeeded",
	breaker.CauseReset:     "closed by hand",
}

// causeWords puts a cause in words.
func causeWords(cause string) string {
	if text, ok := causeTexts[cause]; ok {
		return text
	}
	return cause
}

type breakerTripCmd struct {
	breakerName
	For    string `placeholder:"10m" help:"Reopen after this time: 30s, 10m, 2h, 1d. Until it is reset unless given."`
	Reason string `placeholder:"TEXT" help:"Why, for everybody who asks; at most 500 characters."`
	outputFlag
}

// Help implements kong.HelpProvider.
func (breakerTripCmd) Help() string {
	return `Examples:
  tidegate breaker trip deviantart --for 10m --reason "maintenance"
  tidegate breaker trip deviantart

Jobs stay in their queue meanwhile; calls in flight finish. After the time one
call tests whether the destination answers.`
}

// Run opens a breaker.
func (c *breakerTripCmd) Run(ctx context.Context, p *Process) error {
	o := breaker.TripOptions{Reason: c.Reason, By: p.operator(hostname())}
	if utf8.RuneCountInString(c.Reason) > maxTripReason {
		return inputErrorf("--reason has more than %d characters", maxTripReason)
	}
	if c.For != "" {
		d, err := config.ParseDuration(c.For)
		if err != nil {
			return inputErrorf("--for: %w", err)
		}
		if d < time.Millisecond {
			return inputErrorf("--for must be more than 0, such as 10m; leave it out to open the breaker until it is reset")
		}
		o.For = d
	}
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := breaker.Trip(ctx, s.rdb, c.Name, o)
	if err != nil {
		return fmt.Errorf("breaker trip: %w", err)
	}
	return c.printBreaker(p, b)
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "unknown"
	}
	return host
}

type breakerResetCmd struct {
	breakerName
	outputFlag
}

// Help implements kong.HelpProvider.
func (breakerResetCmd) Help() string {
	return `Example:
  tidegate breaker reset deviantart

If the API still limits, the next answers open the breaker again.`
}

// Run closes a breaker.
func (c *breakerResetCmd) Run(ctx context.Context, p *Process) error {
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := breaker.Reset(ctx, s.rdb, c.Name, p.operator(hostname()))
	if err != nil {
		return fmt.Errorf("breaker reset: %w", err)
	}
	return c.printBreaker(p, b)
}

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
