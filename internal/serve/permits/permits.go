// Package permits grants single calls to programs that are not jobs, under the breakers, limits and keys of the
// destinations: POST /v1/permits. A permit is kept in Redis until it is reported or its lease ends, so that any
// instance of the API takes its report.
package permits

import (
	"cmp"
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
	"github.com/tidegate/tidegate/internal/queue/store"
)

// MaxLease bounds the lease of a permit.
const MaxLease = time.Hour

// confinedLeave is how many per cent of declared limits and of calls in flight the permits of tenants leave to others.
const confinedLeave = 50

// maxOpen bounds the destinations whose breakers are kept open here; further ones are refused until a restart.
const maxOpen = 5000

// ErrFull says that the breakers of too many destinations are open here.
var ErrFull = fmt.Errorf("calls of more than %d destinations were asked for here: restart this process, or ask another one", maxOpen)

// ErrNotFound says that there is no such permit: it was reported, its lease has ended, or it is another token's.
var ErrNotFound = errors.New("there is no such permit: it was reported already, its lease has ended, or it is of another token")

// ErrNoMember is returned for a request without a key where the destination has a pool of tokens.
var ErrNoMember = errors.New("the destination has a pool of tokens, whose limits are each token's own: give the name of the token that the call uses as the key")

// Destination is what a destination's configuration says of calls.
type Destination struct {
	Name    string               // whose breaker it is; "": the one that is asked for
	Breaker breaker.Options      // without Destination, Namespace, Instance and Logger
	Judge   []breakerhttp.Option // how responses are read
	Leave   int                  // per cent of limits, to more urgent jobs
	Pool    bool                 // each call uses a token of a pool, whose name is the request's key
	// Draws is what a call takes of named limits; nil: its cost.
	Draws func(Request) ([]breaker.Draw, error)
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
	open   map[string]opening
	closed bool
}

// opening opens a destination's breaker once, and waits for that.
type opening func() (*breaker.Breaker, error)

func (o opening) close() {
	if b, err := o(); err == nil {
		_ = b.Close() // returns nil, within the client's timeouts
	}
}

// New returns Permits without destinations, whose breakers have the default options until Set is called.
func New(o Options) *Permits {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Permits{o: o, open: map[string]opening{}}
}

// Set takes the destinations' configuration from now on. Permits that were granted stay valid, and calls that wait for
// one go on under the new one.
func (p *Permits) Set(of map[string]Destination) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, opened := range p.open {
		if !reflect.DeepEqual(p.of[name].Breaker, of[name].Breaker) {
			delete(p.open, name)
			go opened.close()
		}
	}
	p.of = of
}

// Close closes the breakers.
func (p *Permits) Close() {
	p.mu.Lock()
	opened := p.open
	p.open, p.closed = nil, true
	p.mu.Unlock()
	for _, one := range opened {
		one.close()
	}
}

// breaker returns the breaker of a destination, and its configuration.
func (p *Permits) breaker(destination string) (*breaker.Breaker, Destination, error) {
	p.mu.Lock()
	d := p.of[destination]
	destination = cmp.Or(d.Name, destination)
	open, ok := p.open[destination]
	switch {
	case ok:
	case p.closed:
		p.mu.Unlock()
		return nil, d, fmt.Errorf("permits: %w", breaker.ErrClosed)
	case len(p.open) >= maxOpen:
		p.mu.Unlock()
		return nil, d, ErrFull
	default:
		o := d.Breaker
		o.Destination, o.Namespace, o.Logger, o.Remote = destination, string(p.o.Namespace), p.o.Logger, true
		o.Instance = breaker.InstanceName("api")
		open = sync.OnceValues(func() (*breaker.Breaker, error) { return breaker.New(context.Background(), p.o.Redis, o) })
		p.open[destination] = open
	}
	p.mu.Unlock()
	b, err := open()
	if err != nil {
		return nil, d, fmt.Errorf("permits: %w", err)
	}
	return b, d, nil
}

// Request asks for a permit. Its fields are valid: the API has checked them.
type Request struct {
	Destination, Key string
	Cost             int             // 0 is 1
	Costs            map[string]int  // of named limits, by their units
	Payload          json.RawMessage // of the call, for estimates and keys of named limits; it may be nil
	Lease            time.Duration   // 0 is the destination's
	Wait             time.Duration   // for how long to wait for it; 0: not at all
	Owner            string          // the caller's token
	Confined         bool            // the caller is believed about the key alone, and leaves half of each limit to others
}

// Granted is a permit.
type Granted struct {
	ID    string
	Until time.Time // when its lease ends
	Probe bool      // it tests whether the API has recovered
}

// UnknownDrawError says that a request does not say what its call takes of a named limit.
type UnknownDrawError struct {
	Limit, Unit string
	Err         error
}

func (e *UnknownDrawError) Error() string {
	return fmt.Sprintf("it is not known what the call takes of limit %s: %s; give the payload, or costs by unit", e.Limit, e.Err)
}

func (e *UnknownDrawError) Unwrap() error { return e.Err }

// kept is a permit in Redis.
type kept struct {
	Destination string `json:"destination"`
	Owner       string `json:"owner,omitempty"`
	Permit      string `json:"permit"`
}

// Grant acquires a permit. A refusal is a *breaker.OpenError, a cost that is never granted a *breaker.CostError.
func (p *Permits) Grant(ctx context.Context, r Request) (Granted, error) {
	permit, d, err := p.acquire(ctx, r)
	if err != nil {
		return Granted{}, err
	}
	lease := cmp.Or(r.Lease, d.Breaker.ProbeTimeout, breaker.DefaultProbeTimeout)
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

// acquire acquires a permit, by the configuration that holds when it is granted.
func (p *Permits) acquire(ctx context.Context, r Request) (breaker.Permit, Destination, error) {
	for end := time.Now().Add(r.Wait); ; {
		b, d, err := p.breaker(r.Destination)
		if err != nil {
			return breaker.Permit{}, d, err
		}
		if d.Pool && r.Key == "" {
			return breaker.Permit{}, d, ErrNoMember
		}
		var draws []breaker.Draw
		if d.Draws != nil {
			if draws, err = d.Draws(r); err != nil {
				return breaker.Permit{}, d, err
			}
		}
		wait := time.Duration(-1) // not at all
		if r.Wait > 0 {
			wait = max(1, time.Until(end))
		}
		b = b.Key(r.Key).Cost(r.Cost).Draws(draws...).Lease(r.Lease).Leave(d.Leave)
		if r.Confined {
			b = b.Leave(max(d.Leave, confinedLeave)).Confined()
		}
		permit, err := b.Wait(ctx, wait)
		if !errors.Is(err, breaker.ErrClosed) { // else Set has replaced it
			return permit, d, err //nolint:wrapcheck // it says which breaker refuses, and why
		}
	}
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
	Cost    int            // that the call really had; 0: as granted
	Costs   map[string]int // the same of named limits, by their units
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
	b, d, err := p.breaker(k.Destination)
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
		_, err = permit.Report(ctx, r.outcome(d))
	}
	if err != nil {
		p.o.Logger.WarnContext(ctx, "the report of a permit has not reached Redis yet; it is repeated", "destination", k.Destination, "error", err)
	}
	return nil
}

func (r *Report) outcome(d Destination) (o breaker.Outcome) {
	switch {
	case r.Status != 0:
		o = breakerhttp.Judge(&http.Response{StatusCode: r.Status, Header: r.Headers}, time.Now(), d.Judge...)
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
	var draws []breaker.Draw
	for _, l := range d.Breaker.Limits {
		cost := r.Cost
		if l.Unit != "" {
			cost = r.Costs[l.Unit]
		}
		draws = append(draws, breaker.Draw{Limit: l.Name, Cost: cost}) // 0: as granted
	}
	return o.WithDraws(draws...)
}
