package config

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Config is the checked configuration of a process. [Load] makes it.
type Config struct {
	// RedisURL is REDIS_URL; redisconn.Open takes it.
	RedisURL Secret
	// Destinations is empty if none is configured; see RequireDestinations.
	Destinations []Destination
	// Breaker holds the global values. ProbeTimeout is 0 if it is not set, as its
	// default depends on the destination.
	Breaker Breaker
	// Retry bounds what jobs may ask for.
	Retry Retry
	// JobRetention keeps completed jobs; 0 means they go at once.
	JobRetention time.Duration
	// JobRetentionFailed keeps failed, cancelled and expired jobs.
	JobRetentionFailed time.Duration
	// MaxCrashes is the number of crashes at which a job fails as poison, 1 or more.
	MaxCrashes int
	// MaxPayloadBytes bounds a job's payload, 1 byte to 16 MiB.
	MaxPayloadBytes int
	// IdempotencyScope is "job" or "attempt".
	IdempotencyScope string
	// ShutdownTimeout is the time that calls in flight get after SIGTERM.
	ShutdownTimeout time.Duration
	// OpsAddr is where a worker serves health and metrics: host:port, "" for nowhere.
	OpsAddr string
	// Log says what is logged, and how.
	Log Log
	// Alerts says who is told of what.
	Alerts Alerts
	// API says where and to whom the HTTP API is served.
	API API
	// PublicURL is the base of links to this Tidegate: absolute, http or https,
	// without a slash at its end. Empty for none.
	PublicURL string

	entries []Entry
}

// Destination is one API that jobs are published to.
type Destination struct {
	// Name matches [a-z0-9][a-z0-9-]{0,62} and is unique.
	Name string
	// URL is absolute, http or https.
	URL string
	// Method is in upper case.
	Method string
	// Timeout bounds one call.
	Timeout time.Duration
	// Concurrency is the number of calls at a time of one process, 1 to 10000.
	Concurrency int
	// AuthToken is the bearer token, empty for none.
	AuthToken Secret
	// AuthTokensFile is a file with a token for each key, empty for none. It could
	// be used when the configuration was loaded.
	AuthTokensFile string
	// Headers go with every call; nil for none. Their values may be credentials.
	Headers http.Header
	// RateLimitedStatus and PermanentStatus are sorted and do not overlap.
	RateLimitedStatus, PermanentStatus []int
	// Hints are the names of the header dialects that are believed, in their order
	// of precedence: those of hint.Default. Not nil, but empty for none.
	Hints []string
	// Rate is the configured rate with its burst; zero for none.
	Rate breaker.Rate
	// Breaker holds the effective values: the destination's own where set, else
	// the global ones.
	Breaker Breaker
	// CallbackURL receives a webhook at the end of each job, signed with each of
	// CallbackSecrets; empty for none.
	CallbackURL     string
	CallbackSecrets []Secret
}

// API is how the HTTP API and the dashboard are served.
type API struct {
	// ListenAddr is host:port; port 0 is a free one.
	ListenAddr string
	// TokensFile is a file of tokens, empty for none.
	TokensFile string
}

// Breaker is how a circuit breaker behaves.
type Breaker struct {
	// Enabled is the switch of the breaker.
	Enabled bool
	// FailureThreshold is the number of consecutive rate-limited answers that
	// open it, 1 or more.
	FailureThreshold int
	// Cooldown is the first one, in whole milliseconds.
	Cooldown time.Duration
	// CooldownMultiplier is 1 or more.
	CooldownMultiplier float64
	// CooldownJitter is 0 (none) to 1.
	CooldownJitter float64
	// MaxCooldown is Cooldown or more.
	MaxCooldown time.Duration
	// TrustHints opens at the first answer that says how long to wait.
	TrustHints bool
	// ProbeTimeout is the lease of the probe.
	ProbeTimeout time.Duration
}

// Retry bounds the retry policy of jobs.
type Retry struct {
	// MaxRetriesLimit bounds max_retries, 1 or more.
	MaxRetriesLimit int
	// MaxDelayLimit bounds max_delay_secs.
	MaxDelayLimit time.Duration
	// LoopInterval is the time between two moves of due jobs to their queue.
	LoopInterval time.Duration
}

// Log is how a process logs.
type Log struct {
	// Level is the lowest level that is written.
	Level slog.Level
	// Format is "auto", "text" or "json".
	Format string
}

// Load reads NAME=value entries, as [os.Environ] returns them, and nothing else.
// On error the Config is nil and the error is [Errors] with everything that is
// wrong. The warnings are useful either way. No destinations are no error here:
// see [Config.RequireDestinations].
func Load(environ []string) (*Config, []Warning, error) {
	l := &loader{env: newEnvironment(environ)}
	blocks := l.env.checkNames(&l.found)
	l.warnEmpty()

	var vars variables
	l.read(&vars.Redis, "", true)
	l.read(&vars.Breaker, "CIRCUIT_BREAKER_", true)
	l.read(&vars.Retry, "RETRY_", true)
	l.read(&vars.Jobs, "", true)
	l.read(&vars.Worker, "", true)
	l.read(&vars.Log, "LOG_", true)
	l.read(&vars.Alerts, "", true)
	l.read(&vars.API, "", true)
	l.checkRedis(vars.Redis)
	l.checkBreaker(vars.Breaker, "CIRCUIT_BREAKER_", "CIRCUIT_BREAKER_")
	l.checkAlerts(&vars.Alerts)
	l.checkPublicURL(&vars.API)
	l.checkOpsAddr(&vars.Worker)
	l.checkListenAddr(vars.API)

	cfg := &Config{
		RedisURL: vars.Redis.URL,
		Breaker:  vars.Breaker.effective(0),
		Retry: Retry{
			MaxRetriesLimit: vars.Retry.MaxRetriesLimit,
			MaxDelayLimit:   vars.Retry.MaxDelayLimit.duration(),
			LoopInterval:    vars.Retry.LoopInterval.duration(),
		},
		JobRetention:       vars.Jobs.Retention,
		JobRetentionFailed: vars.Jobs.RetentionFailed,
		MaxCrashes:         vars.Jobs.MaxCrashes,
		MaxPayloadBytes:    vars.Jobs.MaxPayloadBytes,
		IdempotencyScope:   vars.Jobs.IdempotencyScope,
		ShutdownTimeout:    vars.Worker.ShutdownTimeout,
		OpsAddr:            vars.Worker.OpsAddr,
		Log:                Log{Level: level(vars.Log.Level), Format: vars.Log.Format},
		Alerts:             vars.Alerts.alerts(),
		API:                API{ListenAddr: vars.API.ListenAddr, TokensFile: vars.API.TokensFile},
		PublicURL:          string(vars.API.PublicURL),
	}

	names := map[string]int{}
	destinations := make([]destinationVars, len(blocks))
	for i, index := range blocks {
		d := l.readDestination(index, vars.Breaker)
		if first, taken := names[d.Name]; taken && d.Name != "" {
			l.found.fail(blockName(index, "NAME"), "give each destination its own name",
				"%s is already the name of DESTINATION_%d", quote(d.Name), first)
		} else {
			names[d.Name] = index
		}
		l.checkShutdown(d, index, cfg.ShutdownTimeout)
		destinations[i] = d
		cfg.Destinations = append(cfg.Destinations, d.destination())
	}

	warnings, err := l.found.result()
	if err != nil {
		return nil, warnings, err
	}
	cfg.entries = l.entries(vars, destinations)
	return cfg, warnings, nil
}

// RequireDestinations returns [Errors] if there is no destination, for commands
// that need one.
func (c *Config) RequireDestinations() error {
	if len(c.Destinations) > 0 {
		return nil
	}
	return Errors{&Error{
		Variable: "DESTINATION_0_NAME",
		Problem:  "is not set, and no destination is configured",
		Fix:      "set DESTINATION_0_NAME and DESTINATION_0_URL",
	}}
}

// Destination returns the destination of that name.
func (c *Config) Destination(name string) (Destination, bool) {
	for _, d := range c.Destinations {
		if d.Name == name {
			return d, true
		}
	}
	return Destination{}, false
}

// probeMargin is added to a destination's timeout for the lease of its probe:
// time to report what the call came to.
const probeMargin = 5 * time.Second

// effective converts the variables; timeout is the destination's, or 0 for the
// global values.
func (b breakerVars) effective(timeout time.Duration) Breaker {
	probe := b.ProbeTimeout.duration()
	if probe == 0 && timeout > 0 {
		probe = timeout + probeMargin
	}
	return Breaker{
		Enabled:            b.Enabled,
		FailureThreshold:   b.FailureThreshold,
		Cooldown:           b.Cooldown.duration(),
		CooldownMultiplier: b.CooldownMultiplier,
		CooldownJitter:     b.CooldownJitter,
		MaxCooldown:        b.MaxCooldown.duration(),
		TrustHints:         b.TrustHints,
		ProbeTimeout:       probe,
	}
}

func (d destinationVars) destination() Destination {
	return Destination{
		Name:              d.Name,
		URL:               string(d.URL),
		Method:            d.Method,
		Timeout:           d.Timeout,
		Concurrency:       d.Concurrency,
		AuthToken:         d.AuthToken,
		AuthTokensFile:    d.AuthTokensFile,
		Headers:           http.Header(d.Headers),
		RateLimitedStatus: d.RateLimitedStatus,
		PermanentStatus:   d.PermanentStatus,
		Hints:             d.Hints,
		Rate:              d.rate(),
		Breaker:           d.Breaker.effective(d.Timeout),
		CallbackURL:       string(d.CallbackURL),
		CallbackSecrets:   callbackSecrets(d.CallbackSecret),
	}
}

func level(word string) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(word)) // one of the table's words, or reported already
	return l
}

// blockName is the full name of a destination's variable.
func blockName(index int, name string) string {
	return strings.Replace(blockPrefix, "<i>", strconv.Itoa(index), 1) + name
}
