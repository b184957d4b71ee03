package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Destination is the reserved one whose jobs are alerts. Its handler is an [Alerts].
const Destination = store.AlertsDestination

// The keys of these jobs: each API that is told has a breaker of its own.
const (
	toSlack = "slack"
	toPager = "pagerduty"
)

// BreakerOptions are the rules of these breakers: they open at the first refusal, and
// soon try again.
func BreakerOptions() breaker.Options {
	return breaker.Options{
		FailureThreshold: 1, Cooldown: 5 * time.Second, CooldownMultiplier: 2, MaxCooldown: 5 * time.Minute,
	}
}

// Concurrency is how many alerts a worker delivers at once, Timeout how long that may
// take, each call to Slack or PagerDuty being bounded by 10 s.
const (
	Concurrency = 4
	Timeout     = 2 * time.Minute
)

// Alerts tells people of incidents. It watches while Run runs and delivers where
// [Alerts.Publish] is the handler of [Destination]; each may be in another process.
type Alerts struct {
	o      Options
	rdb    redis.UniversalClient
	store  stateStore
	client *jobs.Client
	now    func(context.Context) (time.Time, error) // Redis's clock; tests replace it
	log    *slog.Logger
	write  writer

	bot   *bot     // nil without a token
	hook  *webhook // nil without a webhook
	pager *pagerDuty

	http *http.Client
	due  triggers
	// slots are for what is being told to Slack.
	slots chan struct{}
	ends  ends

	mu     sync.Mutex
	logged map[string]time.Time // when a problem was last logged
	looked bool                 // this worker has looked around
}

// New returns an Alerts on rdb, which stays the caller's to close. It sends nothing.
// rdb may be nil for [Alerts.Check] and [Alerts.Test]. The error is of invalid options,
// all of them together.
func New(rdb redis.UniversalClient, o Options) (*Alerts, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("alerts: new: %w", err)
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	a := &Alerts{
		o: o, rdb: rdb, store: stateStore{rdb, o.Logger}, log: o.Logger,
		write:  writer{publicURL: o.PublicURL, mention: o.Mention},
		http:   &http.Client{Transport: o.Transport, CheckRedirect: noRedirects},
		due:    newTriggers(),
		slots:  make(chan struct{}, Concurrency-1),
		ends:   newEnds(),
		logged: map[string]time.Time{},
	}
	a.o.Destinations = slices.Clone(o.Destinations)
	if o.SlackToken != "" {
		a.bot = newBot(o, a.http)
	}
	if o.SlackWebhook != "" {
		a.hook = &webhook{client: a.http, url: o.SlackWebhook, told: o.OnDelivery}
	}
	if o.PagerDutyKey != "" {
		a.pager = &pagerDuty{client: a.http, url: o.PagerDutyAPI, key: o.PagerDutyKey, publicURL: o.PublicURL, told: o.OnDelivery}
	}
	if rdb != nil {
		var err error
		if a.client, err = jobs.NewClient(rdb, jobs.WithSystemDestinations(), jobs.WithLogger(o.Logger)); err != nil {
			return nil, fmt.Errorf("alerts: new: %w", err)
		}
		a.now = a.client.Now
	}
	return a, nil
}

// newTransport is one with few connections, which are not kept for long.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: slackTimeout / 2}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    slackTimeout / 2,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// noRedirects keeps tokens from being sent elsewhere.
func noRedirects(*http.Request, []*http.Request) error {
	return errors.New("the address redirects: set the one that it redirects to")
}

// Close drops idle connections. Run and Publish must have returned.
func (a *Alerts) Close() { a.http.CloseIdleConnections() }

// logOnce logs a problem unless it was logged within the last ten minutes.
func (a *Alerts) logOnce(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if at, ok := a.logged[what]; ok && now.Sub(at) < 10*time.Minute {
		return false
	}
	a.logged[what] = now
	return true
}
