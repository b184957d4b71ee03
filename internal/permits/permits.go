// Package permits grants single calls to programs that are not jobs, under the breakers, limits and keys of the
// destinations: POST /v1/permits. A permit is kept in Redis until it is reported or its lease ends, so that any
// instance of the API takes its report.
package permits

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/store"
)

// MaxLease bounds the lease of a permit.
const MaxLease = time.Hour

// maxOpen bounds the destinations whose breakers are kept open here; further ones are refused until a restart.
const maxOpen = 5000

// ErrNotFound says that there is no such permit: it was reported, its lease has ended, or it is another token's.
var ErrNotFound = errors.New("there is no such permit: it was reported already, its lease has ended, or it is of another token")

// Destination is what a destination's configuration says of calls.
type Destination struct {
	Breaker breaker.Options      // without Destination, Namespace, Instance and Logger
	Judge   []breakerhttp.Option // how responses are read
}

// Options configure Permits. Redis is required.
type Options struct {
	Redis     redis.UniversalClient
	Namespace store.Namespace
	Logger    *slog.Logger
}

// Permits grants permits and takes their reports. It is safe for concurrent use.
type Permits struct {
	o Options

	mu     sync.Mutex
	of     map[string]Destination
	open   map[string]*breaker.Breaker
	closed bool
}

// New returns Permits without destinations, whose breakers have the default options until Set is called.
func New(o Options) *Permits {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Permits{o: o, open: map[string]*breaker.Breaker{}}
}

// Set takes the destinations' configuration from now on. Permits that were granted stay valid.
func (p *Permits) Set(of map[string]Destination) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, b := range p.open {
		if !reflect.DeepEqual(p.of[name].Breaker, of[name].Breaker) {
			delete(p.open, name)
			go func() { _ = b.Close() }() // returns nil, within the client's timeouts
		}
	}
	p.of = of
}

// Close closes the breakers.
func (p *Permits) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, b := range p.open {
		_ = b.Close() // returns nil
	}
	clear(p.open)
}

// breaker returns the breaker of a destination, and how its responses are read.
func (p *Permits) breaker(ctx context.Context, destination string) (*breaker.Breaker, []breakerhttp.Option, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.of[destination]
	if b, ok := p.open[destination]; ok {
		return b, d.Judge, nil
	}
	if p.closed || len(p.open) >= maxOpen {
		return nil, nil, fmt.Errorf("permits: %w", breaker.ErrClosed)
	}
	o := d.Breaker
	o.Destination, o.Namespace, o.Logger = destination, string(p.o.Namespace), p.o.Logger
	o.Instance = breaker.InstanceName("api")
	b, err := breaker.New(ctx, p.o.Redis, o)
	if err != nil {
		return nil, nil, fmt.Errorf("permits: %w", err)
	}
	p.open[destination] = b
	return b, d.Judge, nil
}

// Request asks for a permit. Its fields are valid: the API has checked them.
type Request struct {
	Destination, Key string
	Cost             int           // 0 is 1
	Lease            time.Duration // 0 is the destination's
	Wait             time.Duration // for how long to wait for it; 0: not at all
	Owner            string        // the caller's token
}

// Granted is a permit.
type Granted struct {
	ID    string
	Until time.Time // when its lease ends
	Probe bool      // it tests whether the API has recovered
}

// kept is a permit in Redis.
type kept struct {
	Destination string `json:"destination"`
	Owner       string `json:"owner,omitempty"`
	Permit      string `json:"permit"`
}

// Grant acquires a permit. A refusal is a *breaker.OpenError, a cost that is never granted a *breaker.CostError.
func (p *Permits) Grant(ctx context.Context, r Request) (Granted, error) {
	b, _, err := p.breaker(ctx, r.Destination)
	if err != nil {
		return Granted{}, err
	}
	of := b.Key(r.Key).Cost(r.Cost).Lease(r.Lease)
	var permit breaker.Permit
	if r.Wait > 0 {
		permit, err = of.Wait(ctx, r.Wait)
	} else {
		permit, err = of.Allow(ctx)
	}
	if err != nil {
		return Granted{}, err //nolint:wrapcheck // it says which breaker refuses, and why
	}
	lease := r.Lease
	if lease == 0 {
		lease = p.lease(r.Destination)
	}
	g := Granted{ID: rand.Text(), Until: permit.Until(), Probe: permit.Probe()}
	if g.Until.IsZero() {
		g.Until = time.Now().Add(lease)
	}
	if err := p.keep(ctx, g.ID, kept{Destination: r.Destination, Owner: r.Owner}, permit, lease); err != nil {
		_ = permit.Release(context.WithoutCancel(ctx)) // it is repeated, and its lease ends anyway
		return Granted{}, err
	}
	return g, nil
}

func (p *Permits) lease(destination string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.of[destination].Breaker.ProbeTimeout; d > 0 {
		return d
	}
	return breaker.DefaultProbeTimeout
}

func (p *Permits) key(id string) string { return p.o.Namespace.Key("permit:" + id) }

func (p *Permits) keep(ctx context.Context, id string, k kept, permit breaker.Permit, lease time.Duration) error {
	text, err := permit.MarshalText()
	if err != nil {
		return fmt.Errorf("permits: keep: %w", err)
	}
	k.Permit = string(text)
	record, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("permits: keep: %w", err)
	}
	if err := p.o.Redis.Set(ctx, p.key(id), record, lease).Err(); err != nil {
		return fmt.Errorf("permits: keep: %w", err)
	}
	return nil
}

// Report is what a call came to: the API's response, or an outcome.
type Report struct {
	Status  int // of the response; 0: Outcome says it
	Headers http.Header
	Outcome string // success, limited, failure, unauthorized, neutral or unused
	Retry   time.Duration
	Cost    int // that the call really had; 0: as granted
	Owner   string
}

// Outcomes are the values of Report.Outcome.
const (
	Success      = "success"
	Limited      = "limited"
	Failure      = "failure"
	Unauthorized = "unauthorized"
	Neutral      = "neutral"
	Unused       = "unused"
)

// Report reports a permit, once: then it is ErrNotFound.
func (p *Permits) Report(ctx context.Context, id string, r Report) error {
	text, err := p.o.Redis.Get(ctx, p.key(id)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("permits: report: %w", err)
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("permits: report: %w", err)
	}
	if k.Owner != r.Owner {
		return ErrNotFound
	}
	b, judge, err := p.breaker(ctx, k.Destination)
	if err != nil {
		return err
	}
	permit, err := b.Permit([]byte(k.Permit))
	if err != nil {
		return fmt.Errorf("permits: report: %w", err)
	}
	// Of reports at one instant one counts.
	if n, err := p.o.Redis.Del(ctx, p.key(id)).Result(); err != nil || n == 0 {
		if err == nil {
			return ErrNotFound
		}
		return fmt.Errorf("permits: report: %w", err)
	}
	ctx = context.WithoutCancel(ctx)
	if r.Outcome == Unused {
		err = permit.Release(ctx)
	} else {
		_, err = permit.Report(ctx, r.outcome(judge))
	}
	if err != nil {
		p.o.Logger.WarnContext(ctx, "the report of a permit has not reached Redis yet; it is repeated", "destination", k.Destination, "error", err)
	}
	return nil
}

func (r *Report) outcome(judge []breakerhttp.Option) (o breaker.Outcome) {
	switch {
	case r.Status != 0:
		o = breakerhttp.Judge(&http.Response{StatusCode: r.Status, Header: r.Headers}, time.Now(), judge...)
	case r.Outcome == Success:
		o = breaker.Success()
	case r.Outcome == Limited:
		o = breaker.RateLimited(r.Retry)
	case r.Outcome == Failure:
		o = breaker.Failure()
	case r.Outcome == Unauthorized:
		o = breaker.Unauthorized()
	default:
		o = breaker.Neutral()
	}
	if r.Cost > 0 {
		o = o.WithCost(r.Cost)
	}
	return o
}
