package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// Options configure a Dashboard. Redis, Client and Guard are required.
type Options struct {
	Redis  redis.UniversalClient
	Client *jobs.Client
	// Guard authenticates viewers; see also [Dashboard.PageError].
	Guard *access.Guard
	// Hub publishes events. Without it pages are only polled every few seconds.
	Hub *feed.Hub
	// Cache holds the data of pages; it may be shared with the API. Default: one for the pages.
	Cache *ops.Cache
	// Version of Tidegate, for the foot of the pages.
	Version string
	// Logger gets errors. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Dashboard is an http.Handler; see [New].
type Dashboard struct {
	rdb     redis.UniversalClient
	client  *jobs.Client
	ns      breaker.Namespace
	guard   *access.Guard
	version string
	log     *slog.Logger
	clock   func() time.Time
	ops     *ops.System

	// ahead is how far Redis's clock is ahead of this process's, in nanoseconds.
	ahead   atomic.Int64
	cache   *ops.Cache
	assets  *assets
	pages   *pages
	live    *live
	handler http.Handler
}

// New returns the dashboard. It sends no command to Redis.
func New(o Options) (*Dashboard, error) {
	if o.Redis == nil || o.Client == nil || o.Guard == nil {
		return nil, errors.New("dashboard: Redis, Client and Guard are required")
	}
	d := &Dashboard{
		rdb: o.Redis, client: o.Client, ns: breaker.Namespace(o.Client.Namespace()), guard: o.Guard, version: o.Version, log: o.Logger,
		clock: o.Now, cache: o.Cache,
	}
	d.log = cmp.Or(d.log, slog.Default())
	if d.clock == nil {
		d.clock = time.Now
	}
	if d.cache == nil {
		d.cache = ops.NewCache(d.clock)
	}
	d.ops = ops.New(ops.Options{Redis: o.Redis, Client: o.Client, Log: d.log, Cache: d.cache})
	var err error
	if d.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if d.pages, err = loadPages(d); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d.live = newLive(o.Hub, d.log, d.cache.Forget)
	d.routes()
	return d, nil
}

// ServeHTTP serves all pages.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webserver.SetHeaders(w.Header())
	d.handler.ServeHTTP(w, r)
}

func (d *Dashboard) routes() {
	mux := http.NewServeMux()
	mux.Handle("GET /static/", d.assets)
	open := func(pattern string, h handler) { mux.Handle(pattern, d.guard.Public(d.handle(h))) }
	open("GET /login", d.login)
	open("POST /login", d.signIn)
	open("POST /logout", d.signOut)
	open("POST /theme", d.setTheme)

	page := func(pattern string, h handler) { mux.Handle(pattern, d.guard.Pages(d.reader(h))) }
	page("GET /{$}", d.overview)
	page("GET /jobs", d.jobList)
	page("POST /jobs", d.acts(d.jobsAct))
	page("GET /jobs/{id}", d.jobPage)
	page("GET /incidents", d.incidents)
	page("GET /incidents/{id...}", d.incident)
	page("GET /destinations", d.destinations)
	page("GET /destinations/{name}", d.destination)
	page("POST /destinations/{name}", d.acts(d.destinationAct))
	page("GET /breakers", func(w http.ResponseWriter, r *http.Request) error {
		redirect(w, r, "/destinations")
		return nil
	})
	page("GET /breakers/{name...}", d.breaker)
	page("POST /breakers/{name...}", d.acts(d.breakerAct))
	page("GET /audit", d.audit)
	page("GET /search", d.search)
	page("GET /live", d.events)
	page("/", func(http.ResponseWriter, *http.Request) error {
		return absent("There is no such page", "The address may be mistyped, or of another version of Tidegate.")
	})
	d.handler = webserver.Routed(mux)
}

// handler answers, or returns an error for fail.
type handler func(w http.ResponseWriter, r *http.Request) error

func (d *Dashboard) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			d.fail(w, r, err)
		}
	})
}

// reader wraps the handler of a page that needs the scope read.
func (d *Dashboard) reader(h handler) http.Handler {
	return d.handle(func(w http.ResponseWriter, r *http.Request) error {
		if !d.viewerOf(r.Context()).Read {
			return refused("read")
		}
		return h(w, r)
	})
}

// now is the time of Redis's clock as last measured.
func (d *Dashboard) now() time.Time {
	return d.clock().Add(time.Duration(d.ahead.Load())).UTC()
}

// setClock measures how far Redis's clock is ahead.
func (d *Dashboard) setClock(ctx context.Context) error {
	before := d.clock()
	t, err := d.client.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	d.ahead.Store(int64(t.Sub(before.Add(d.clock().Sub(before) / 2))))
	return nil
}
