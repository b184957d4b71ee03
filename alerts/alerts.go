package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Destination is the reserved one whose jobs are alerts. Its handler is an [Alerts]. The
// key of a job is the name of its notifier: each has a breaker of its own.
const Destination = store.AlertsDestination

// breakerOptions are the rules of these breakers: they open at the first refusal, and
// soon try again.
func breakerOptions() breaker.Options {
	return breaker.Options{
		FailureThreshold: 1, Cooldown: 5 * time.Second, CooldownMultiplier: 2, MaxCooldown: 5 * time.Minute,
		NoEarlyTests:    true, // a service that asks for a pause gets it
		OutageThreshold: -1,   // notifiers are down one by one
	}
}

// concurrency is how many alerts a worker delivers at once, timeout how long that may
// take, each call of a notifier being bounded by [notice.CallTimeout].
const (
	concurrency = 4
	timeout     = 2 * time.Minute
)

// Alerts notifies people of incidents. It watches while Run runs and delivers where
// [Alerts.Publish] is the handler of [Destination]; each may be in another process.
type Alerts struct {
	o        Options
	rdb      redis.UniversalClient
	store    stateStore
	breakers breaker.Namespace
	client   *jobs.Client
	now      func(context.Context) (time.Time, error) // Redis's clock; tests replace it
	local    func() time.Time                         // this machine's clock; tests replace it
	log      *slog.Logger
	composer composer

	buffer *buffer
	// slots are for notifiers that are not pagers: one that hangs leaves room for pages.
	slots chan struct{}

	logged  outage.Limiter // of problems
	scanned atomic.Bool    // this worker has scanned its destinations
}

// New returns an Alerts on rdb, which stays the caller's to close. It sends nothing.
// rdb may be nil for [Alerts.Check] and [Alerts.Test]. The error holds all invalid options; that about
// a client that cannot be used matches jobs.ErrClient.
func New(rdb redis.UniversalClient, o Options) (*Alerts, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("alerts: new: %w", err)
	}
	a := &Alerts{
		o: o, rdb: rdb, store: stateStore{rdb, store.Namespace(o.Namespace), o.Logger}, breakers: breaker.Namespace(o.Namespace), log: o.Logger,
		local: time.Now, composer: composer{o.PublicURL, o.OpenTooLong},
		buffer: newBuffer(),
		slots:  make(chan struct{}, concurrency-1),
		logged: outage.Limiter{Every: 10 * time.Minute},
	}
	a.o.Destinations = slices.Clone(o.Destinations)
	if rdb != nil {
		var err error
		if a.client, err = jobs.NewClient(rdb, jobs.WithNamespace(o.Namespace), jobs.WithLogger(o.Logger)); err != nil {
			return nil, fmt.Errorf("alerts: new: %w", err)
		}
		a.now = a.client.Now
	}
	return a, nil
}

// Serve makes a publisher deliver alerts. It returns an error if the publisher has another Namespace, and any error of
// [publisher.Publisher.Handle].
func (a *Alerts) Serve(p *publisher.Publisher) error {
	if p == nil {
		return errors.New("alerts: serve: the publisher is nil")
	}
	if err := a.needsRedis("serve"); err != nil {
		return err
	}
	if p.Namespace() != a.o.Namespace {
		return fmt.Errorf("alerts: serve: Namespace is %q, and the publisher's is %q", a.o.Namespace, p.Namespace())
	}
	return p.Handle(Destination, a, publisher.Concurrency(concurrency), publisher.Timeout(timeout), publisher.Breaker(breakerOptions()))
}

// needsRedis returns the error of a function that cannot do without Redis.
func (a *Alerts) needsRedis(function string) error {
	if a.rdb == nil {
		return fmt.Errorf("alerts: %s: the Redis client is nil; pass one to New", function)
	}
	return nil
}

// Close closes the notifiers. Run and Publish must have returned.
func (a *Alerts) Close() {
	for _, n := range a.o.Notifiers {
		n.Close()
	}
}

// Check asks the services whether their settings are right, as far as they can be asked
// without sending anything; [Alerts.Test] finds the rest.
func (a *Alerts) Check(ctx context.Context) []notice.Problem {
	var out []notice.Problem
	for _, n := range a.o.Notifiers {
		if c, ok := n.(notice.Checker); ok {
			out = append(out, c.Check(ctx)...)
		}
	}
	return out
}

// logProblems logs what is wrong with the configuration.
func (a *Alerts) logProblems(ctx context.Context) {
	for _, p := range a.Check(ctx) {
		if p.Fatal {
			a.logPermanent(ctx, p.Of, p.Text)
		} else {
			a.log.WarnContext(ctx, "alerts may not be delivered", "to", p.Of, "problem", p.Text)
		}
	}
}
