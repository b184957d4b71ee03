package cli

import (
	"context"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
)

// maxReason is the longest reason, in characters: what breaker.Trip accepts.
const maxReason = 500

func checkReason(reason string) error {
	if utf8.RuneCountInString(reason) > maxReason {
		return inputErrorf("--reason has more than %d characters", maxReason)
	}
	return nil
}

type breakerTripCmd struct {
	breakerName
	For    string `placeholder:"10m" help:"Reopen after this time: 30s, 10m, 2h, 1d. Until it is reset unless given."`
	Reason string `placeholder:"TEXT" help:"Shown with the state, and kept in its history; at most 500 characters."`
	outputFlag
}

// Run opens a breaker.
func (c *breakerTripCmd) Run(ctx context.Context, p *Process) error {
	length, err := byHand(c.For, c.Reason)
	if err != nil {
		return err
	}
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.breakers.Trip(ctx, s.rdb, c.Name, breaker.TripOptions{For: length, Reason: c.Reason, By: p.operator(hostname())})
	if err != nil {
		return fmt.Errorf("breaker trip: %w", err)
	}
	return c.printBreaker(p, b, breakerNotes{})
}

// byHand checks --for and --reason; no time means until it is reset.
func byHand(length, reason string) (time.Duration, error) {
	if err := checkReason(reason); err != nil {
		return 0, err
	}
	if length == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(length)
	if err != nil {
		return 0, inputErrorf("--for: %w", err)
	}
	if d < time.Millisecond {
		return 0, inputErrorf("--for must be more than 0, such as 10m; leave it out for \"until it is reset\"")
	}
	return d, nil
}

type breakerForceCmd struct {
	breakerName
	State  string `arg:"" enum:"open,closed" help:"open: no call is made; closed: calls go out whatever the API sends."`
	For    string `placeholder:"10m" help:"For this time: 30s, 10m, 2h, 1d. Until it is reset unless given."`
	Reason string `placeholder:"TEXT" help:"Shown with the state, and kept in its history; at most 500 characters."`
	outputFlag
}

// Run forces a breaker.
func (c *breakerForceCmd) Run(ctx context.Context, p *Process) error {
	length, err := byHand(c.For, c.Reason)
	if err != nil {
		return err
	}
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	by := p.operator(hostname())
	var b breaker.Status
	if c.State == "open" {
		b, err = s.breakers.Trip(ctx, s.rdb, c.Name, breaker.TripOptions{For: length, Reason: c.Reason, By: by})
	} else {
		b, err = s.breakers.ForceClosed(ctx, s.rdb, c.Name, breaker.ForceOptions{For: length, Reason: c.Reason, By: by})
	}
	if err != nil {
		return fmt.Errorf("breaker force: %w", err)
	}
	return c.printBreaker(p, b, breakerNotes{})
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

// Run closes a breaker.
func (c *breakerResetCmd) Run(ctx context.Context, p *Process) error {
	s, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.breakers.Reset(ctx, s.rdb, c.Name, p.operator(hostname()))
	if err != nil {
		return fmt.Errorf("breaker reset: %w", err)
	}
	return c.printBreaker(p, b, breakerNotes{})
}
