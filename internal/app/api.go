package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/internal/call/keyurl"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/api"
	"github.com/tidegate/tidegate/internal/serve/dashboard"
	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/internal/serve/permits"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// RunAPI serves the HTTP API and the dashboard of cfg until ctx ends and returns nil
// after a stop in order. It serves also while Redis is away, and then answers with errors.
//
// Errors: the address cannot be listened on, or is open to others without tokens; the
// file of tokens is not in order (config.Errors).
func RunAPI(ctx context.Context, cfg *config.Config, log *slog.Logger, process Process) (err error) {
	var stop teardown
	defer func() { err = errors.Join(err, stop.run()) }()

	traced := StartTracing(ctx, process.Environ, process.Version, log)
	stop.add(func() error { traced.Stop(flushWithin); return nil })
	if err := CheckAPI(cfg); err != nil {
		return err
	}
	var known *access.Tokens
	if cfg.API.TokensFile != "" {
		if known, err = access.OpenTokens(cfg.API.TokensFile, access.Options{Logger: log}); err != nil {
			return fmt.Errorf("app: api: %w", err)
		}
	}
	rdb, closer, err := redisconn.Open(ctx, cfg.RedisURL.Reveal(), redisconn.Options{ClientName: "tidegate-api", ReadTimeout: process.RedisTimeout, Logger: log})
	if err != nil {
		return fmt.Errorf("app: open Redis: %w", err)
	}
	stop.add(closer.Close)
	check := &Check{}
	check.take(cfg)
	client, err := newClient(rdb, cfg, check, traced, log)
	if err != nil {
		return fmt.Errorf("app: api: %w", err)
	}
	seen := newRequests(process)
	file := newDestinationsFile(cfg, seen.registry, log)
	granter := permits.New(permits.Options{Redis: rdb, Namespace: store.Namespace(cfg.RedisNamespace), Logger: log})
	stop.add(func() error { granter.Close(); return nil })
	limits := &operatorLimits{rdb: rdb, namespace: store.Namespace(cfg.RedisNamespace), log: log}
	limits.read(ctx)
	var current atomic.Pointer[config.Config]
	current.Store(limits.above(cfg))
	granter.Set(permitsOf(current.Load()))
	served, err := APIHandler(ctx, APIOptions{
		Permits: granter, Gateway: func(name string) (time.Duration, bool) { return gatewayOf(current.Load(), name) },
		Redis: rdb, Client: client, Limits: Limits(cfg), Tokens: known, PublicURL: cfg.API.PublicURL, Warning: file.warning,
		Metrics: scrapes(seen.registry, log), Version: process.Version, Logger: log,
	})
	if err != nil {
		return err
	}
	stop.add(func() error { served.Close(); return nil })
	server, err := webserver.Start(ctx, webserver.Options{Addr: cfg.API.ListenAddr, Listener: process.Listener, Handler: served, Logger: log, OnRequest: seen.observe})
	if err != nil {
		return config.Errors{&config.Error{
			Variable: "LISTEN_ADDR", Problem: err.Error(), Fix: "set it to an address of this machine with a free port",
		}}
	}
	stop.add(server.Close)
	if known == nil && process.Listener == nil { // else the caller says it
		log.WarnContext(ctx, "there are no tokens: every caller that reaches this address has all rights; set API_TOKENS_FILE", "addr", server.Addr())
	}
	log.InfoContext(ctx, "api started", "version", process.Version, "url", "http://"+server.Addr())
	notify(log, daemon.SdNotifyReady)
	files := followFile(ctx, cfg, config.LoadForAPI, process.Environ, file, &stop)
	changes := limits.follow(ctx, cfg, files, file, &stop)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case next := <-changes:
			check.take(next.configured)
			granter.Set(permitsOf(next.cfg))
			current.Store(next.cfg)
			next.taken <- client.SetDestinations(destinationNames(next.configured)...)
		}
	}
	notify(log, daemon.SdNotifyStopping)
	log.Info("api stops")
	return nil
}

// Limits returns the limits of jobs that cfg sets.
func Limits(cfg *config.Config) jobs.Limits {
	return jobs.Limits{
		MaxPayloadBytes: cfg.MaxPayloadBytes,
		RetryMaxRetries: cfg.Retry.MaxRetriesLimit,
		RetryMaxDelay:   time.Duration(cfg.Retry.MaxDelayLimit),
	}
}

// NewClient returns a client as cfg has it, whose enqueues are traced if traced is not nil.
func NewClient(rdb redis.UniversalClient, cfg *config.Config, traced *Tracing, log *slog.Logger) (*jobs.Client, error) {
	check := &Check{}
	check.take(cfg)
	return newClient(rdb, cfg, check, traced, log)
}

// gatewayOf returns how long the gateway waits for a destination where its caller says nothing, and whether it is strict.
func gatewayOf(cfg *config.Config, name string) (wait time.Duration, strict bool) {
	for _, d := range cfg.Destinations {
		if d.Name == name {
			return d.GatewayWait, d.GatewayStrict
		}
	}
	return 0, false
}

// permitsOf are the destinations of cfg for calls that are not jobs, which count as jobs of the default priority.
func permitsOf(cfg *config.Config) map[string]permits.Destination {
	of := map[string]permits.Destination{}
	for _, d := range cfg.Destinations {
		limits, _, _ := namedLimits(d.Limits) // checked with the configuration
		p := permits.Destination{Name: d.Name, Pool: d.Pooled(), Breaker: BreakerOptions(d), Leave: d.Reserve[jobs.PriorityHigh], Judge: []breakerhttp.Option{
			breakerhttp.RateLimitedStatus(d.RateLimitedStatus...), breakerhttp.Hints(dialects(d.Hints)...),
		}}
		p.Breaker.MaxInFlight = d.Concurrency // as far as is known
		for _, l := range limits {
			p.Breaker.Limits = append(p.Breaker.Limits, l.NamedLimit)
		}
		p.Draws = func(r permits.Request) (draws []breaker.Draw, err error) {
			job := &jobs.Job{Key: r.Key, Priority: jobs.PriorityDefault, Cost: max(1, r.Cost), Costs: r.Costs, Payload: r.Payload}
			for _, l := range limits {
				draw, unestimated, unkeyed := l.Draw(job)
				if err := cmp.Or(unestimated, unkeyed); err != nil {
					return nil, &permits.UnknownDrawError{Limit: l.Name, Unit: l.Unit, Err: err}
				}
				draws = append(draws, draw)
			}
			return draws, nil
		}
		of[d.Name] = p
	}
	return of
}

func destinationNames(cfg *config.Config) (names []string) {
	for _, d := range cfg.Destinations {
		names = append(names, d.Name)
	}
	return names
}

func newClient(rdb redis.UniversalClient, cfg *config.Config, check *Check, traced *Tracing, log *slog.Logger) (*jobs.Client, error) {
	return jobs.NewClient(rdb, append(traced.clientOptions(),
		jobs.WithNamespace(cfg.RedisNamespace),
		jobs.WithLimits(Limits(cfg)),
		jobs.WithDestinations(destinationNames(cfg)...),
		jobs.WithCheck(check.Problems),
		jobs.WithRetention(cfg.JobRetention),
		jobs.WithLogger(log),
	)...)
}

// Check checks jobs by what HTTP destinations can send and a configuration knows of its own.
type Check struct {
	of    atomic.Pointer[map[string]destinationRules]
	hosts atomic.Pointer[config.Hosts]
}

type destinationRules struct {
	keys          *regexp.Regexp
	needsKey      bool
	timeout       time.Duration
	rate, keyRate breaker.Rates
	limits        config.LimitUses
}

// CheckOf returns the problems of jobs by cfg.
func CheckOf(cfg *config.Config) func(*jobs.Spec) []jobs.FieldError {
	c := &Check{}
	c.take(cfg)
	return c.Problems
}

// take checks by cfg from now on.
func (c *Check) take(cfg *config.Config) {
	of := map[string]destinationRules{}
	for _, d := range cfg.Destinations {
		r := destinationRules{needsKey: strings.Contains(d.URL, keyurl.Place), timeout: d.Timeout}
		if d.KeyPattern != "" {
			r.keys, _ = keyurl.Pattern(d.KeyPattern) // checked with the configuration
		}
		if d.Breaker.Enabled {
			r.rate, r.keyRate, r.limits = d.Rate, d.KeyRate, d.Limits
		}
		of[d.Name] = r
	}
	c.of.Store(&of)
	c.hosts.Store(&cfg.CallbackHosts)
}

// Problems returns what is wrong with a job.
func (c *Check) Problems(s *jobs.Spec) []jobs.FieldError {
	problems := httpjob.Check(s)
	for field, target := range map[string]string{"on_success": s.OnSuccess, "on_failure": s.OnFailure} {
		if host := jobs.CallbackHost(target); host != "" && !slices.Contains(*c.hosts.Load(), host) {
			problems = append(problems, jobs.FieldError{Field: field, Message: "goes to a host that is not in CALLBACK_HOSTS"})
		}
	}
	r, known := (*c.of.Load())[s.Destination]
	switch {
	case !known:
		return problems
	case s.Key == "" && r.needsKey:
		problems = append(problems, jobs.FieldError{Field: "key", Message: "is missing; the URL of destination " + s.Destination + " holds {key}"})
	case s.Key != "" && r.keys != nil && !r.keys.MatchString(s.Key):
		problems = append(problems, jobs.FieldError{Field: "key", Message: fmt.Sprintf("%q does not match KEY_PATTERN of destination %s", s.Key, s.Destination)})
	}
	if t := time.Duration(s.Request.TimeoutSecs) * time.Second; t > r.timeout {
		problems = append(problems, jobs.FieldError{Field: "request.timeout_secs", Message: fmt.Sprintf("is more than the timeout of destination %s, %s", s.Destination, r.timeout)})
	}
	tooSmall := func(field string, cost int, setting string, of breaker.Rates) {
		if w, never := of.TooSmall(cost); never {
			problems = append(problems, jobs.FieldError{Field: field, Message: fmt.Sprintf(
				"%d is above the window %s of %s of destination %s: the job can never run; split it, or raise the window's burst", cost, w, setting, s.Destination)})
		}
	}
	cost := 1
	if s.Cost != nil {
		cost = *s.Cost
		tooSmall("cost", cost, "RATE", r.rate)
		if s.Key != "" {
			tooSmall("cost", cost, "KEY_RATE", r.keyRate)
		}
	}
	for _, l := range r.limits {
		if l.Unit == "" {
			tooSmall("cost", cost, "limit "+l.Name, l.Rate)
		} else {
			tooSmall("costs", s.Costs[l.Unit], "limit "+l.Name, l.Rate)
		}
	}
	return problems
}

// CheckAPI checks what the API needs of cfg: tokens where others reach it, and a file of tokens that can be read. The
// error is config.Errors.
func CheckAPI(cfg *config.Config) error {
	fail := func(problem, fix string) *config.Error {
		return &config.Error{Variable: "API_TOKENS_FILE", Problem: problem, Fix: fix}
	}
	path := cfg.API.TokensFile
	if err := access.CheckAddress(cfg.API.ListenAddr, path != ""); err != nil {
		return config.Errors{fail(err.Error(), "make one with: tidegate token new --name NAME --scope operate --file tokens.json")}
	}
	if path == "" {
		return nil
	}
	var all config.Errors
	_, _, err := access.ReadFile(path)
	problems, ok := errors.AsType[tokens.Errors](err)
	if !ok && err != nil {
		problems = tokens.Errors{{What: err.Error(), Fix: "see tidegate token new --help"}}
	}
	for _, p := range problems {
		all = append(all, fail(fmt.Sprintf("file %q: %s", path, p.What), p.Fix))
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// APIOptions are what the API and the dashboard are made of.
type APIOptions struct {
	// Redis and Client on it are required.
	Redis  redis.UniversalClient
	Client *jobs.Client
	// Limits of the client.
	Limits jobs.Limits
	// Permits grants calls of programs that are not jobs; nil: none.
	Permits *permits.Permits
	// Gateway returns how long the gateway waits for a destination, and whether it is strict; nil: the caller says so.
	Gateway func(destination string) (wait time.Duration, strict bool)
	// Tokens that are valid. Nil: every caller has all rights.
	Tokens *access.Tokens
	// PublicURL is PUBLIC_URL.
	PublicURL string
	// Warning returns what /readyz warns of; nil: of nothing.
	Warning func() string
	// Metrics answers /metrics; nil: there are none.
	Metrics http.Handler
	// Version of the build.
	Version string
	Logger  *slog.Logger
}

// Served is the API and the dashboard. Close ends what works for them.
type Served struct {
	http.Handler
	stop    context.CancelFunc
	working sync.WaitGroup
}

// Close ends streams of events and waits for what works in the background.
func (s *Served) Close() {
	s.stop()
	s.working.Wait()
}

// APIHandler puts the API and the dashboard together.
func APIHandler(ctx context.Context, o APIOptions) (*Served, error) {
	var board *dashboard.Dashboard // it draws the guard's errors, and needs the guard
	guard, err := access.NewGuard(access.GuardOptions{
		Tokens: o.Tokens, Redis: o.Redis, Namespace: o.Client.Namespace(), PublicURL: o.PublicURL, Logger: o.Logger,
		PageError: func(w http.ResponseWriter, r *http.Request, status int, message string) {
			board.PageError(w, r, status, message)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("app: api: %w", err)
	}
	hub := feed.New(o.Redis, o.Client, feed.Options{Logger: o.Logger})
	cache := ops.NewCache(nil)
	board, err = dashboard.New(dashboard.Options{
		Redis: o.Redis, Client: o.Client, Guard: guard, Hub: hub, Version: o.Version, Logger: o.Logger, Cache: cache,
	})
	if err != nil {
		return nil, fmt.Errorf("app: api: %w", err)
	}
	rest := api.New(api.Options{Redis: o.Redis, Client: o.Client, Limits: o.Limits, Events: hub, Permits: o.Permits, Gateway: o.Gateway, Logger: o.Logger, Cache: cache})
	ready := &apiHealth{rdb: o.Redis, warning: o.Warning}
	mux := http.NewServeMux()
	mux.Handle("/v1/", guard.API(rest))
	mux.Handle("POST "+api.CompletionsPath, guard.Callbacks(rest))
	mux.Handle("GET /openapi.json", guard.Public(rest))
	mux.HandleFunc("GET /healthz", ready.live)
	mux.HandleFunc("GET /readyz", ready.ready)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", guard.API(guard.RequireAPI(access.ScopeRead, o.Metrics)))
	}
	mux.Handle("/", board)

	gateway, routed := api.GatewayToken(guard.APIWith(rest, api.GatewayProblem)), webserver.Routed(mux)
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.IsGateway(r) {
			gateway.ServeHTTP(w, r)
			return
		}
		routed.ServeHTTP(w, r)
	})

	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Served{Handler: all, stop: cancel}
	s.working.Go(func() { hub.Run(working) })
	s.working.Go(func() { awaitRights(working, o.Redis, o.Client.Namespace(), o.Logger) })
	return s, nil
}

// awaitRights waits for Redis and says which rights are missing, if any.
func awaitRights(ctx context.Context, rdb redis.UniversalClient, namespace string, log *slog.Logger) {
	for ctx.Err() == nil {
		if redisconn.Wait(ctx, rdb, log, redisPatience) == nil {
			break
		}
	}
	if err := redisconn.CheckRights(ctx, rdb, namespace); err != nil && ctx.Err() == nil {
		log.ErrorContext(ctx, "Redis refuses some of what is needed", "error", err)
	}
}

// apiHealth answers orchestrators.
type apiHealth struct {
	rdb     redis.UniversalClient
	warning func() string // may be nil

	mu      sync.Mutex // held while Redis is asked; waiting calls share the answer
	problem error
	memory  store.Eviction
	askedAt time.Time
}

// How long an answer of Redis is given again, and how long Redis has for it.
const (
	healthFor     = time.Second
	healthTimeout = 3 * time.Second
)

// live answers that the process lives, without a look at Redis.
func (h *apiHealth) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// ready answers whether Redis answers: nothing else is needed.
func (h *apiHealth) ready(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := health.Report{Status: health.Ready, Redis: "ok", Destinations: []health.Destination{}}
	if memory, err := h.ask(r.Context()); err != nil {
		out.Status, out.Reason, out.Redis = health.NotReady, "Redis does not answer", "does not answer"
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		out.RedisWarning = memory.Problem()
		if memory.Full {
			out.Redis = store.ShortFullProblem
		}
		if h.warning != nil {
			out.ConfigWarning = h.warning()
		}
	}
	_ = json.NewEncoder(w).Encode(out) // the caller has gone
}

func (h *apiHealth) ask(ctx context.Context) (store.Eviction, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.askedAt.IsZero() || time.Since(h.askedAt) >= healthFor {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
		defer cancel()
		h.problem, h.askedAt = h.rdb.Ping(ctx).Err(), time.Now()
		h.memory, _ = store.ReadEviction(ctx, h.rdb) // where INFO is forbidden, it is not known
	}
	return h.memory, h.problem
}
