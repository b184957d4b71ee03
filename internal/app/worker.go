// Package app holds what runs until it is stopped, with the order in which
// its parts start and stop.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/base/seal"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/internal/dest/oauth"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/minutes"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// redisPatience is how long a worker waits for Redis at its start.
const redisPatience = 30 * time.Second

// redisGrace is how long after SHUTDOWN_TIMEOUT a worker that stops gives Redis up. What
// is not written down by then comes back when leases end.
const redisGrace = 5 * time.Second

// startTakes is how long a worker with many destinations makes garbage after it has started.
const startTakes = 5 * time.Second

// flushWithin is how long a worker's end waits for the collector of traces.
const flushWithin = 5 * time.Second

// Process is what a worker or the API has of the process that it runs in.
type Process struct {
	// Version and Commit of the build.
	Version, Commit string
	// Environ are NAME=value entries: OTEL_* ones for tracing, the settings for reloads of the destinations file.
	Environ []string
	// Listener of the API. Nil: it listens on LISTEN_ADDR.
	Listener net.Listener
	// RedisTimeout bounds the wait for a reply of Redis. 0: the default of redisconn.Options.
	RedisTimeout time.Duration
	// OnTransition is called for each transition of a breaker that the worker sees; it may be nil.
	OnTransition func(breaker.Event)
}

// RunWorker publishes the jobs of cfg's destinations until ctx ends and returns
// nil after a stop in order, also if ctx ends before everything has started.
//
// It starts health and metrics, Redis, then the HTTP destinations, the alerting and the
// publisher, and stops them the other way round. Errors: the address of health and
// metrics cannot be used, Redis cannot be reached within 30 s, a destination cannot be
// served (config.Errors), or the publisher had to give up.
func RunWorker(ctx context.Context, cfg *config.Config, log *slog.Logger, process Process) (err error) {
	var stop teardown
	defer func() { err = errors.Join(err, stop.run()) }()

	traced := StartTracing(ctx, process.Environ, process.Version, log)
	stop.add(func() error { traced.Stop(flushWithin); return nil })
	seen, err := newWatched(ctx, cfg, log, &stop)
	if err != nil {
		return err
	}
	rdb, closer, err := redisconn.Open(ctx, cfg.RedisURL.Reveal(), redisconn.Options{ClientName: "tidegate-worker", ReadTimeout: process.RedisTimeout, Logger: log})
	if err != nil && ctx.Err() != nil {
		log.InfoContext(ctx, "stopped before Redis was opened")
		return nil
	}
	if err != nil {
		return fmt.Errorf("app: open Redis: %w", err)
	}
	stop.add(closer.Close)
	stop.add(closeLate(ctx, closer, cfg.ShutdownTimeout+redisGrace, log))
	// From here on a scrape says that Redis is away, should it be.
	counted, err := metrics.New(seen.registry, metrics.Options{Redis: rdb, Namespace: cfg.RedisNamespace, Version: process.Version, Commit: process.Commit, Logger: log})
	if err != nil {
		return fmt.Errorf("app: worker: %w", err)
	}
	if err := awaitRedis(ctx, rdb, cfg.RedisNamespace, log); err != nil {
		if ctx.Err() != nil {
			log.InfoContext(ctx, "stopped before Redis was reached")
			return nil
		}
		return err
	}
	seen.ready.opened(rdb, cfg.RedisNamespace)
	warnOfFewDescriptors(ctx, cfg, rdb, log)
	if others, err := store.Namespace(cfg.RedisNamespace).Others(ctx, rdb); err == nil && len(others) > 0 {
		log.WarnContext(ctx, "REDIS_NAMESPACE is new in this database; jobs of other namespaces stay there",
			"namespace", cfg.RedisNamespace, "others", others)
	}
	charts, err := NewClient(rdb, cfg, nil, log)
	if err != nil {
		return fmt.Errorf("app: charts: %w", err)
	}
	recorder := minutes.NewRecorder(rdb, charts, log)
	w := &workerProcess{rdb: rdb, log: log, counted: counted, recorder: recorder, traced: traced, namespace: cfg.RedisNamespace, onTransition: process.OnTransition}
	if w.tokens, err = oauth.NewOwn(); err != nil {
		return fmt.Errorf("app: worker: %w", err)
	}
	if cfg.DestinationsFile != "" {
		w.config = seen.file.config
	}
	client, err := jobs.NewClient(rdb, jobs.WithNamespace(cfg.RedisNamespace), jobs.WithLogger(log))
	if err != nil {
		return fmt.Errorf("app: worker: %w", err)
	}
	limits := &operatorLimits{rdb: rdb, namespace: store.Namespace(cfg.RedisNamespace), log: log}
	limits.read(ctx)
	first, err := w.build(ctx, limits.above(cfg), nil)
	if err != nil {
		return err
	}
	stop.background(ctx, recorder.Run) // until after the publisher's end: its last jobs count
	seen.follow(ctx, first.publisher.Started(), &stop)
	system := ops.New(ops.Options{Redis: rdb, Client: client, Log: log})
	stop.background(ctx, func(ctx context.Context) { forgetRemoved(ctx, system, cfg.JobRetentionFailed, log) })
	stop.background(ctx, func(ctx context.Context) { returnMemory(ctx, first.publisher.Started()) })
	if names := cfg.WithoutRetry(); len(names) > 0 {
		log.InfoContext(ctx, "jobs without a retry policy are called once: a failure of the API fails them; set RETRY of their destinations, to none if that is meant", "destinations", names)
	}
	log.InfoContext(ctx, "worker started", "version", process.Version, "destinations", len(cfg.Destinations))
	files := followFile(ctx, cfg, config.Load, process.Environ, seen.file, &stop)
	if err := w.run(ctx, first, limits.follow(ctx, cfg, files, seen.file, &stop), seen); err != nil {
		return err
	}
	log.InfoContext(ctx, "worker stopped")
	return nil
}

// workerProcess is what all generations of a worker share.
type workerProcess struct {
	rdb      redis.UniversalClient
	log      *slog.Logger
	counted  *metrics.Metrics
	recorder *minutes.Recorder
	traced   *Tracing
	tokens   *oauth.Own

	namespace    string
	onTransition func(breaker.Event)
	config       func() (version, problem string) // nil without a destinations file
}

// generation is what publishes by one version of the configuration.
type generation struct {
	publisher *publisher.Publisher
	names     []string // of its destinations
	stop      teardown
}

// build makes the generation of cfg, which run starts after the one before (nil: it is the first), or stops the parts
// that it has started.
func (w *workerProcess) build(ctx context.Context, cfg *config.Config, before *generation) (made *generation, err error) {
	g := &generation{names: destinationNames(cfg)}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.stop.run())
		}
	}()
	alerting, err := newAlerting(cfg, w.rdb, w.counted, w.log, &g.stop)
	if err != nil {
		return nil, err
	}
	called, err := newCalling(cfg, w.rdb, w.log, &g.stop)
	if err != nil {
		return nil, err
	}
	options := publisher.Options{
		Logger:            w.log,
		Namespace:         cfg.RedisNamespace,
		ShutdownTimeout:   cfg.ShutdownTimeout,
		RetryLoopInterval: time.Duration(cfg.Retry.LoopInterval),
		Retention:         explicit(cfg.JobRetention),
		RetentionFailed:   explicit(cfg.JobRetentionFailed),
		MaxCrashes:        cfg.MaxCrashes,
		PublicURL:         cfg.API.PublicURL,
		Config:            w.config,
	}
	if before != nil {
		options.Before = before.publisher
	}
	alerting.observe(&options)
	w.counted.Observe(&options)
	w.recorder.Observe(&options)
	called.observe(&options)
	w.traced.observe(&options)
	options.Observe(publisher.Observer{OnTransition: w.onTransition})
	if g.publisher, err = publisher.New(w.rdb, options); err != nil {
		return nil, fmt.Errorf("app: worker: %w", err)
	}
	for i, d := range cfg.Destinations {
		if err := serve(g.publisher, i, d, w.rdb, w.tokens, w.counted.RuleFailed, w.traced, cfg, w.log, &g.stop); err != nil {
			return nil, err
		}
	}
	if err := alerting.serve(ctx, g.publisher, &g.stop); err != nil {
		return nil, err
	}
	if err := called.serve(ctx, g.publisher, w.log, &g.stop); err != nil {
		return nil, err
	}
	return g, nil
}

// run publishes with the first generation, and after each change of the configuration with a new one, until ctx ends.
// The replaced generation fetches no more jobs and finishes its calls in flight.
func (w *workerProcess) run(ctx context.Context, current *generation, changes <-chan change, seen *watched) error {
	var replaced sync.WaitGroup
	defer replaced.Wait()
	for {
		running, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		g := current // which changes before this one has ended
		go func() {
			defer cancel()
			err := g.publisher.Run(running)
			if err != nil {
				err = fmt.Errorf("app: worker: %w", err)
			}
			ended <- errors.Join(err, g.stop.run())
		}()
		w.counted.Watch(current.publisher)
		seen.ready.made(current.publisher)
		var next *generation
		var ready <-chan change // changes, once the next generation can count what this one has in flight
		started := current.publisher.Started()
		for next == nil {
			select {
			case err := <-ended:
				return err
			case <-started:
				ready, started = changes, nil
			case c := <-ready:
				var err error
				if next, err = w.build(ctx, c.cfg, current); err != nil {
					next = nil
				}
				c.taken <- err
			}
		}
		cancel()
		replaced.Go(func() { w.noteRemoved(ctx, g.names, next.names) })
		replaced.Go(func() {
			if err := <-ended; err != nil {
				w.log.ErrorContext(ctx, "what published by the configuration before did not end in order", "error", err)
			}
		})
		current = next
	}
}

// noteRemoved notes the destinations that the configuration no longer has; see forgetRemoved.
func (w *workerProcess) noteRemoved(ctx context.Context, before, after []string) {
	removed := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(after, name) })
	if len(removed) == 0 {
		return
	}
	began := time.Now()
	note := func() error {
		now, err := w.rdb.Time(ctx).Result()
		if err != nil {
			return err //nolint:wrapcheck // logged below
		}
		var fields []any
		for _, name := range removed {
			fields = append(fields, name, now.Add(-time.Since(began)).UnixMilli())
		}
		return w.rdb.HSet(ctx, store.Namespace(w.namespace).RemovedKey(), fields...).Err() //nolint:wrapcheck // likewise
	}
	for err := note(); err != nil; err = note() {
		w.log.WarnContext(ctx, "destinations that were removed cannot be noted yet, and stay in the lists", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(forgetRemovedEvery):
		}
	}
}

// forgetRemovedEvery is the interval at which a worker forgets removed destinations that have nothing left.
const forgetRemovedEvery = time.Minute

func forgetRemoved(ctx context.Context, system *ops.System, failed time.Duration, log *slog.Logger) {
	tick := time.Tick(forgetRemovedEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if err := system.ForgetRemoved(ctx, failed); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "a removed destination cannot be forgotten yet", "error", err)
		}
	}
}

// returnMemory returns to the system, once, what a start leaves behind. Its garbage would
// otherwise count as used until the next collection, which an idle worker hardly ever needs.
func returnMemory(ctx context.Context, started <-chan struct{}) {
	select {
	case <-started:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(startTakes):
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
}

// closeLate closes the client at that time after ctx's end, and with it ends all that
// still waits for a Redis that does not answer: go-redis goes on to read when a context
// is cancelled. The step that it returns calls that off.
func closeLate(ctx context.Context, client io.Closer, after time.Duration, log *slog.Logger) func() error {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		select {
		case <-time.After(after):
			log.Warn("Redis does not answer in time; the worker stops without it")
			_ = client.Close() // again at its own step, which says what went wrong
		case <-done:
		}
	})
	return func() error {
		close(done)
		waiting.Wait()
		return nil
	}
}

// awaitRedis waits until Redis answers, and checks that this process has the permissions that it needs.
func awaitRedis(ctx context.Context, rdb redis.UniversalClient, namespace string, log *slog.Logger) error {
	if err := redisconn.Wait(ctx, rdb, log, redisPatience); err != nil {
		return err
	}
	return redisconn.CheckRights(ctx, rdb, namespace)
}

// handles is what a handler is added to: a publisher.Publisher.
type handles interface {
	Handle(destination string, h publisher.Handler, opts ...publisher.HandleOption) error
}

// serve adds an HTTP destination to the publisher.
func serve(p handles, index int, d config.Destination, rdb redis.UniversalClient, own *oauth.Own, ruleFailed func(destination string), traced *Tracing, cfg *config.Config, log *slog.Logger, stop *teardown) error {
	// The configuration was checked, but not as strictly as here, and files change.
	refused := func(variable string, err error) error {
		return config.Errors{&config.Error{Variable: cfg.Setting(index, variable), Problem: err.Error()}}
	}
	var tokens httpdest.Tokens
	if d.AuthTokensFile != "" {
		file, err := httpdest.OpenTokens(d.AuthTokensFile, httpdest.TokensFileOptions{Logger: log.With("destination", d.Name)})
		if err != nil {
			return refused("AUTH_TOKENS_FILE", err)
		}
		tokens = file
	}
	var keys publisher.HandleOption
	if d.Pooled() {
		file, err := httpdest.OpenPool(d.AuthPoolFile, httpdest.TokensFileOptions{Logger: log.With("destination", d.Name)})
		if err != nil {
			return refused("AUTH_POOL_FILE", err)
		}
		tokens, keys = file, publisher.Pool(file.Keys)
	} else {
		keyBy, err := answers.KeyBy(d.KeyBy)
		if err != nil {
			return refused("KEY_BY", err)
		}
		keys = publisher.KeyBy(keyBy)
	}
	source, err := tokenSource(d, rdb, own, cfg, log, stop)
	if err != nil {
		return refused("OAUTH_REFRESH_TOKENS_FILE", err)
	}
	options := httpOptions(d)
	options.Tokens, options.TokenSource, options.PerAttemptKey = tokens, source, cfg.IdempotencyScope == "attempt"
	options.CredentialsKey, _, _ = strings.Cut(cfg.Credentials.Key.Reveal(), ",")
	options.MaxPayloadBytes, options.Logger = cfg.MaxPayloadBytes, log.With("destination", d.Name)
	if file := d.AuthTokenFile; file != "" {
		options.AuthToken, options.AuthTokenFile = "", file
		options.OnToken = func(secrets ...string) { cfg.Redactor().Add(file, secrets...) }
	}
	rules, err := OpenRules(d, ruleFailed, log)
	if err != nil {
		return refused("ANSWERS_FILE", err)
	}
	if rules != nil {
		options.Rules = rules
	}
	limits, costs, err := namedLimits(d.Limits)
	if err != nil {
		return refused("LIMITS", err)
	}
	options.Costs = costs
	counted := []string{d.Limits.String()}
	for _, l := range d.Limits {
		counted = append(counted, l.Key)
	}
	traced.wrap(&options)
	h, err := httpdest.New(options)
	if err == nil {
		stop.add(h.Close)
		err = p.Handle(d.Name, h,
			publisher.Concurrency(d.Concurrency),
			publisher.Timeout(d.Timeout),
			publisher.MaxRefusedAlone(d.MaxRefusedAlone),
			publisher.Reserve(d.Reserve),
			publisher.Retry(d.Retry),
			publisher.Turns(d.Fair, d.Weights),
			publisher.Order(jobs.Ordering(d.Order), publisher.OnFail(d.OnFail)),
			publisher.Breaker(BreakerOptions(d)),
			publisher.ShortProbe(), // config warns of it
			keys,
			publisher.Limits(limits...),
			publisher.Setting("what limits count", fmt.Sprintf("%q", counted)),
			publisher.Setting("key by", d.KeyBy),
			publisher.Setting("preset", d.Preset),
			publisher.Setting("URL", d.Method+" "+d.URL),
			publisher.Setting("key pattern", d.KeyPattern),
			publisher.Setting("authentication", fmt.Sprintf("%q %q %q %q %v", d.AuthHeader, d.AuthScheme, d.AuthQuery, d.SignHeader, d.SignSecret != "")),
			publisher.Setting("callback URL", d.CallbackURL),
			publisher.Setting("OAuth", fmt.Sprintf("%s %s %s", d.OAuthTokenURL, d.OAuthClientID, d.OAuthScopes)),
			publisher.Setting("statuses", fmt.Sprint(d.RateLimitedStatus, d.PermanentStatus)),
			publisher.Setting("hints", fmt.Sprint(d.Hints)))
	}
	if err != nil {
		return refused("", err)
	}
	return nil
}

// tokenSource returns the tokens of OAuth 2.0 of a destination, nil if it has none.
func tokenSource(d config.Destination, rdb redis.UniversalClient, own *oauth.Own, cfg *config.Config, log *slog.Logger, stop *teardown) (httpdest.TokenSource, error) {
	if d.OAuthTokenURL == "" {
		return nil, nil
	}
	var sealer *seal.Sealer
	if key := cfg.Credentials.Key; key != "" {
		var err error
		if sealer, err = seal.New(key.Reveal()); err != nil {
			return nil, fmt.Errorf("CREDENTIALS_KEY: %w", err)
		}
	}
	source, err := oauth.New(oauth.Options{
		Redis: rdb, Namespace: store.Namespace(cfg.RedisNamespace), Destination: d.Name,
		TokenURL: d.OAuthTokenURL, ClientID: d.OAuthClientID, ClientSecret: d.OAuthClientSecret.Reveal(),
		Scopes: strings.Fields(d.OAuthScopes), RefreshTokensFile: d.OAuthRefreshTokensFile, Sealer: sealer, Own: own,
		Logger: log.With("destination", d.Name),
	})
	if err != nil {
		return nil, fmt.Errorf("app: tokens: %w", err)
	}
	stop.add(source.Close)
	return source, nil
}

// httpOptions returns the options that follow from the destination's variables alone.
func httpOptions(d config.Destination) httpdest.Options {
	return httpdest.Options{
		URL:               d.URL,
		KeyPattern:        d.KeyPattern,
		Method:            d.Method,
		AuthToken:         d.AuthToken.Reveal(),
		AuthHeader:        d.AuthHeader,
		AuthScheme:        d.AuthScheme,
		AuthQuery:         d.AuthQuery,
		SignSecret:        d.SignSecret.Reveal(),
		SignHeader:        d.SignHeader,
		ResponseBodyBytes: d.ResponseBodyBytes,
		Header:            d.Headers,
		RateLimitedStatus: d.RateLimitedStatus,
		Hints:             dialects(d.Hints),
		PermanentStatus:   d.PermanentStatus,
		Connections:       d.Concurrency,
		TrustOutcome:      d.TrustOutcome,
		GatewayHeaders:    d.GatewayHeaders,
	}
}

// dialects is never nil, which would mean the default.
func dialects(names []string) []hint.Dialect {
	out := []hint.Dialect{}
	for _, name := range names {
		if d, ok := hint.ByName(name); ok {
			out = append(out, d)
		}
	}
	return out
}

// BreakerOptions returns the breaker's options that the destination's variables set.
func BreakerOptions(d config.Destination) breaker.Options {
	b := d.Breaker
	return breaker.Options{
		OutageThreshold:    explicit(b.OutageThreshold),
		Disabled:           !b.Enabled,
		FailureThreshold:   b.FailureThreshold,
		Cooldown:           time.Duration(b.Cooldown),
		CooldownMultiplier: b.CooldownMultiplier,
		CooldownJitter:     explicit(b.CooldownJitter),
		MaxCooldown:        time.Duration(b.MaxCooldown),
		IgnoreHints:        !b.TrustHints,
		NoLearning:         !b.Learn,
		NoEarlyTests:       !b.EarlyTests,
		ProbeTimeout:       time.Duration(b.ProbeTimeout),
		Rate:               d.Rate,
		OperatorRate:       d.OperatorRate,
		KeyRate:            d.KeyRate,
		FleetConcurrency:   d.FleetConcurrency,
		KeyConcurrency:     d.KeyConcurrency,
	}
}

// explicit translates a setting: 0 is "not at all" in the configuration and "the
// default" in options.
func explicit[T int | float64 | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}
