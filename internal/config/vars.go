package config

import (
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/jobs"
)

// Config is the checked configuration of a process, and the one table of its environment
// variables: to add one, add a field. [Load] makes it.
//
// Tags of a field:
//
//	env         name behind the group's prefix; options required, notEmpty
//	envDefault  default
//	min, max    bounds, in the unit in which the variable is written
//	oneof       allowed words
//	form        kind of a value where its type does not say it; see kinds
//	secret      value is never printed and may come from X_FILE
//	            (implied by the type Secret)
//	example     value in config.example.env where the default would not do
//
// The comment of a variable is its documentation; the comment of a field of Config is the title and introduction of
// its group.
type Config struct {
	// Redis
	//
	// Jobs and breakers live in Redis.
	Redis
	// Destinations file
	File
	// Destinations
	//
	// One block of variables per destination; `<i>` counts from 0 without gaps.
	Destinations []Destination `env:"-" envPrefix:"DESTINATION_<i>_"`
	// Circuit breaker
	//
	// Values for all destinations. `DESTINATION_<i>_CIRCUIT_BREAKER_…` overrides any
	// of them for one destination.
	Breaker Breaker `envPrefix:"CIRCUIT_BREAKER_"`
	// Retries
	//
	// Upper bounds of the retry policy that a job may ask for.
	Retry Retry `envPrefix:"RETRY_"`
	// Jobs
	Jobs
	// Credentials
	//
	// What workers need to share the tokens of OAuth 2.0.
	Credentials Credentials
	// Worker
	Worker
	// Logging
	Log Log `envPrefix:"LOG_"`
	// Alerts
	//
	// There are no alerts without a receiver: Slack (bot token and channel, or a
	// webhook) or PagerDuty. Both may be set.
	Alerts Alerts
	// HTTP API
	API API

	env      *environment
	limits   []Limit
	blocks   []int            // numbers of Destinations
	redactor *secret.Redactor // of Redactor
}

// Redis is where jobs and breakers live.
type Redis struct {
	// Where Redis is: redis://, rediss:// (TLS), redis-socket:// (unix socket),
	// redis-sentinel:// or redis-cluster://.
	RedisURL Secret `env:"REDIS_URL" form:"redis" envDefault:"redis://127.0.0.1:6379/0"`
	// Prefix of all queues, keys and channels, `[a-z0-9][a-z0-9-]{0,30}`, so that several
	// installations share a Redis database. The same for all workers, APIs and commands of
	// one. See docs/operations.md.
	RedisNamespace string `env:"REDIS_NAMESPACE" form:"namespace" envDefault:"tidegate"`
}

// File is where destinations may be configured beside variables.
type File struct {
	// YAML file with destinations by name, taken up while processes run. Variables win over it. See
	// docs/configuration.md.
	DestinationsFile string `env:"DESTINATIONS_FILE" example:"/etc/tidegate/destinations.yaml"`
}

// Destination is one API that jobs are published to.
type Destination struct {
	// Name that jobs are enqueued for: lower-case letters, digits and hyphens, 1 to 63
	// characters, not starting with a hyphen, nor tidegate-alerts or tidegate-callbacks.
	Name string `form:"destination" env:"NAME,required,notEmpty" example:"example"`
	// Defaults of this destination for a known API: URL, where a token goes, limits, meaning
	// of responses. See docs/apis and `tidegate presets`.
	Preset string `form:"preset" env:"PRESET" example:"github"`
	// Address that jobs are published to: http or https, without user, password or fragment.
	// Required unless the preset has one. `{key}` in its host, path or query is the place of a
	// job's key; set KEY_PATTERN then.
	URL string `form:"target" env:"URL,required,notEmpty" example:"https://api.example.com/v1/posts"`
	// Regular expression (RE2) that keys must match as a whole. A job with another key fails
	// without a call, or is refused at the enqueue.
	KeyPattern string `form:"pattern" env:"KEY_PATTERN" example:"[a-z0-9-]{1,40}"`
	// HTTP method of jobs that choose none.
	Method string `form:"method" env:"METHOD" envDefault:"POST"`
	// Longest time of a call, from connecting to the end of the response.
	Timeout time.Duration `env:"TIMEOUT" envDefault:"30s" min:"1ms"`
	// Calls that one worker makes at the same time.
	Concurrency int `env:"CONCURRENCY" envDefault:"10" min:"1" max:"10000"`
	// Token of the API, sent as AUTH_HEADER, AUTH_SCHEME and AUTH_QUERY say; with
	// AUTH_TOKENS_FILE, by jobs without a key. Its file is read again when it changes.
	AuthToken Secret `form:"token" env:"AUTH_TOKEN" example:"replace-me"`
	// File with a JSON object from key to token, read again when it changes. A job whose key
	// has none fails at once; tidegate retry sends it when the token is there.
	AuthTokensFile string `env:"AUTH_TOKENS_FILE" example:"/etc/tidegate/tokens.json"`
	// File of a pool of tokens: a JSON object from name to token, read again when it changes. Each call takes the
	// token that has most left; needs KEY_BY=pool. See docs/credentials.md.
	AuthPoolFile string `env:"AUTH_POOL_FILE" example:"/etc/tidegate/pool.json"`
	// Token endpoint of OAuth 2.0: calls get access tokens, which are renewed. See
	// docs/credentials.md.
	OAuthTokenURL string `form:"url" env:"OAUTH_TOKEN_URL" example:"https://auth.example.com/oauth2/token"`
	// Id of the client that the API has registered.
	OAuthClientID string `env:"OAUTH_CLIENT_ID" example:"tidegate"`
	// Secret of that client. Public clients have none.
	OAuthClientSecret Secret `env:"OAUTH_CLIENT_SECRET" example:"replace-me"`
	// Scopes that are asked for with client credentials, with spaces between them.
	OAuthScopes string `env:"OAUTH_SCOPES" example:"read publish"`
	// File with a JSON object from key to refresh token, read again when it changes. Without
	// it: client credentials. Give CREDENTIALS_KEY too.
	OAuthRefreshTokensFile string `env:"OAUTH_REFRESH_TOKENS_FILE" example:"/etc/tidegate/refresh-tokens.json"`
	// Header that tokens are sent in.
	AuthHeader string `form:"header" env:"AUTH_HEADER" envDefault:"Authorization"`
	// Scheme before a token in that header. Basic: a token is user:password. none: a token is
	// sent alone.
	AuthScheme string `form:"scheme" env:"AUTH_SCHEME" envDefault:"Bearer"`
	// Parameter of the query that tokens are sent in, in place of a header.
	AuthQuery string `env:"AUTH_QUERY" example:"api_key"`
	// Signs the body of each call: SIGN_HEADER is its HMAC-SHA256 in hexadecimal.
	SignSecret Secret `env:"SIGN_SECRET" example:"replace-me"`
	// Header of that signature.
	SignHeader string `form:"header" env:"SIGN_HEADER" envDefault:"X-Signature-256"`
	// Headers of every call; a value cannot hold a comma, and a job cannot replace one.
	// Authorization, Host, Content-Length, Idempotency-Key and the hop-by-hop headers are
	// refused. See docs/security.md.
	Headers http.Header `env:"HEADERS" secret:"true" example:"X-Client:shop,Accept:application/json"`
	// Statuses that mean "rate limited". Where 403 is listed, a 403 without a header or a body that says
	// so fails the job at once. See docs/hints.md.
	RateLimitedStatus []int `env:"RATE_LIMITED_STATUS" envDefault:"429"`
	// Statuses that make a job fail without a retry; but a 401 to a call with a token opens
	// the breaker.
	PermanentStatus []int `env:"PERMANENT_STATUS" envDefault:"400,401,404,409,410,413,414,415,422,431"`
	// File with rules that say what a response means where its status does not, in YAML or
	// JSON, read again when it changes. See docs/answers.md.
	AnswersFile string `env:"ANSWERS_FILE" example:"/etc/tidegate/answers.yaml"`
	// Honour the header Tidegate-Outcome of responses, for your own API. See docs/answers.md.
	TrustOutcome bool `env:"TRUST_OUTCOME" envDefault:"false"`
	// Headers that are believed about the API's limit, in their order of precedence. See
	// docs/hints.md.
	Hints []string `env:"HINTS" envDefault:"retry-after,ratelimit,x-ratelimit"`
	// Calls per time of the whole fleet, up to 8 windows: 60/1h spaces calls evenly, 60/1h:5
	// lets 5 leave at once after a pause, 60/1h@Europe/Paris counts from one full hour there
	// to the next; also 1d, 1w, 1mo. off: none, where a preset has some. See docs/limits.md.
	Rate breaker.Rates `env:"RATE" example:"100/10s:20,500000/1d@Europe/Paris"`
	// Calls that may leave at once, after a pause, in windows of RATE without a number or a
	// zone; 1 unless set.
	Burst int `env:"BURST" min:"1" example:"5"`
	// The same for each key.
	KeyRate breaker.Rates `env:"KEY_RATE" example:"10/1s:5"`
	// Calls that the whole fleet makes at once at most.
	FleetConcurrency int `env:"FLEET_CONCURRENCY" min:"1" example:"5"`
	// The same for one key.
	KeyConcurrency int `env:"KEY_CONCURRENCY" min:"1" example:"1"`
	// Parts of each window and of calls in flight that jobs of lower priorities leave to these
	// and more urgent ones. See docs/limits.md.
	Reserve Reserve `env:"RESERVE" example:"high=20%,default=10%"`
	// Expression over a job's key, request, payload and priority: the key of its breaker, KEY_RATE and
	// KEY_CONCURRENCY, such as request.path. The job's own key still chooses its token. See docs/limits.md. pool: the
	// token of AUTH_POOL_FILE that the call takes.
	KeyBy string `form:"key expression" env:"KEY_BY" example:"request.path"`
	// Keys of one priority take turns where calls are scarce: a limit refuses some, or the API is
	// slow. false: first in, first out.
	Fair bool `env:"FAIR" envDefault:"true"`
	// Weights of keys that take turns, from 0.01 to 1000; others have 1. A key of weight 3 has three
	// calls for one of another. By KEY_BY they are of its keys.
	Weights Weights `env:"WEIGHTS" example:"acme=3,guest=0.5"`
	// How the jobs of a key are called. key: one at a time, in the order in which they become due, for each
	// priority; none: several at once, in any order. A job's order wins over it. See docs/limits.md.
	Order string `env:"ORDER" envDefault:"none" oneof:"none,key"`
	// What the failure of an ordered job means for the later ones of its key. skip: they go on; block: they wait
	// until it is retried or cancelled.
	OnFail string `env:"ON_FAIL" envDefault:"skip" oneof:"skip,block"`
	// Named limits that it draws on, up to 8, as a list in YAML; the section limits of
	// DESTINATIONS_FILE defines them. See docs/limits.md.
	Limits LimitUses `env:"LIMITS" example:"[openai-requests, {name: openai-tokens, estimate: payload.max_tokens}]"`
	// Retry policy of jobs that have none: max=3,initial=5s,multiplier=2,max-delay=5m,on=timeout+failure,
	// each but max with these defaults; or none: one call, because a call whose response was lost may have
	// had its effect. The preset's, else none. See docs/concepts.md.
	Retry jobs.RetryPolicy `env:"RETRY" example:"max=3,initial=5s"`
	// Refusals of one job, while the API accepts others, after which it fails. 0: it never
	// fails. See docs/limits.md.
	MaxRefusedAlone int `env:"MAX_REFUSED_ALONE" envDefault:"10" min:"0"`
	// Bytes of a response's body that are kept with its job.
	ResponseBodyBytes int `env:"RESPONSE_BODY_BYTES" envDefault:"4096" min:"1" max:"1048576"`
	// How long the gateway waits for the response where its caller says nothing by Prefer; 0s: not at all. Up to 5m.
	// See docs/gateway.md.
	GatewayWait time.Duration `env:"GATEWAY_WAIT" min:"0s" max:"5m" example:"30s"`
	// After the wait the gateway answers 503 or 504 with Retry-After in place of 202, for SDKs that take 202 for the
	// API's response. Needs GATEWAY_WAIT.
	GatewayStrict bool `env:"GATEWAY_STRICT" envDefault:"false"`
	// Headers of responses that the gateway passes to its caller, beside Link, Location, ETag, Retry-After, ids of
	// requests and those about limits and totals.
	GatewayHeaders HeaderNames `env:"GATEWAY_HEADERS" example:"X-Own,Deprecation"`
	// Receives a signed webhook at the end of each job. See docs/callbacks.md.
	CallbackURL string `form:"url" env:"CALLBACK_URL" example:"https://app.example.com/hooks/tidegate"`
	// Signs these webhooks: whsec_ and 24 to 64 random bytes in base64. Of several, with
	// commas between them, all sign.
	CallbackSecret Secret `env:"CALLBACK_SECRET" example:"whsec_cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU="`
	// Overrides of the circuit breaker for this destination; each one that is
	// not set takes the global value.
	Breaker Breaker `envPrefix:"CIRCUIT_BREAKER_"`
	// AuthTokenFile is the file that AuthToken was read from; "" for none.
	AuthTokenFile string `env:"-"`
	// OperatorRate says that Rate is an operator's, in place of the configured one.
	OperatorRate bool `env:"-"`
}

// Breaker is how a circuit breaker behaves.
type Breaker struct {
	// Off: no response opens the breaker, and no rate or concurrency of the fleet is kept. A
	// trip or force by hand holds all the same.
	Enabled bool `env:"ENABLED" envDefault:"true"`
	// Rate-limited responses in a row that open the breaker.
	FailureThreshold int `env:"FAILURE_THRESHOLD" envDefault:"3" min:"1"`
	// Calls of different jobs in a row that ended in 5xx, a timeout or a broken connection, or
	// all in 401, or all in 403, which open the breaker with cause outage. 0: none.
	OutageThreshold int `env:"OUTAGE_THRESHOLD" envDefault:"10" min:"0" max:"100"`
	// First cooldown.
	Cooldown Millis `env:"COOLDOWN_MS" envDefault:"300000" min:"1"`
	// Each failed probe multiplies the cooldown by this. 2 suits APIs that punish calls made
	// while limited.
	CooldownMultiplier float64 `env:"COOLDOWN_MULTIPLIER" envDefault:"1" min:"1" max:"1000"`
	// Part of a cooldown that is added at random once it has grown.
	CooldownJitter float64 `env:"COOLDOWN_JITTER" envDefault:"0.1" min:"0" max:"1"`
	// Longest cooldown. A longer wait that the API asks for is tested after it, and kept, up to a
	// day, if the API asks for it again.
	MaxCooldown Millis `env:"MAX_COOLDOWN_MS" envDefault:"3600000" min:"1"`
	// A rate-limited response that says how long to wait opens the breaker at once, until
	// then.
	TrustHints bool `env:"TRUST_HINTS" envDefault:"true"`
	// Learn limits from rate-limited responses that do not say how long to wait. See
	// docs/limits.md.
	Learn bool `env:"LEARN" envDefault:"true"`
	// Test an opening without a hint at growing, round instants, at the latest after the cooldown. With false it
	// stays open for the whole cooldown.
	EarlyTests bool `env:"EARLY_TESTS" envDefault:"true"`
	// Lease of the probe; longer than the destination's timeout.
	ProbeTimeout Millis `env:"PROBE_TIMEOUT_MS" min:"1" example:"35000"`
}

// Retry bounds the retry policy of jobs.
type Retry struct {
	// Of max_retries.
	MaxRetriesLimit int `env:"MAX_RETRIES_LIMIT" envDefault:"10" min:"1"`
	// Of max_delay_secs, in seconds.
	MaxDelayLimit Secs `env:"MAX_DELAY_LIMIT" envDefault:"3600" min:"1"`
	// How often a worker polls queues that have sent no message. Jobs are published when they are due.
	LoopInterval Millis `env:"LOOP_INTERVAL_MS" envDefault:"1000" min:"10"`
}

// Jobs are the settings for all jobs.
type Jobs struct {
	// How long a completed job is kept.
	JobRetention time.Duration `env:"JOB_RETENTION" envDefault:"24h" min:"0s"`
	// How long a failed, cancelled or expired job is kept.
	JobRetentionFailed time.Duration `env:"JOB_RETENTION_FAILED" envDefault:"2160h" min:"0s"`
	// A job that was running so often when its worker died fails as poison.
	MaxCrashes int `env:"MAX_CRASHES" envDefault:"3" min:"1"`
	// Largest payload of a job, in bytes.
	MaxPayloadBytes int `env:"MAX_PAYLOAD_BYTES" envDefault:"262144" min:"1" max:"16777216"`
	// Hosts to which jobs may send callbacks of their own, on_success and on_failure, with the port if the URL has
	// one. CALLBACK_SECRET of their destination signs them. Workers and the API need the same.
	CallbackHosts Hosts `env:"CALLBACK_HOSTS" example:"app.example.com,hooks.example.com:8443"`
	// "job": all calls of a job have the same Idempotency-Key; "attempt": each retry has
	// another one.
	IdempotencyScope string `env:"IDEMPOTENCY_SCOPE" envDefault:"job" oneof:"job,attempt"`
}

// Credentials are how tokens that the fleet shares are kept.
type Credentials struct {
	// Encrypts the tokens of OAuth 2.0 in Redis: 32 random bytes in base64, the same for all
	// workers. Of several, with commas between them, the first encrypts and each decrypts.
	// Without it each worker fetches its tokens, and rotated refresh tokens are lost when it
	// stops.
	Key Secret `form:"credentials key" env:"CREDENTIALS_KEY" example:"cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU="`
}

// Worker is how a worker process runs.
type Worker struct {
	// Time that calls in flight get to finish after SIGTERM.
	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"30s" min:"1ms"`
	// Address of the worker's /healthz, /readyz and /metrics: host:port, `:9090` for all
	// interfaces, or `off`. If the default is taken: a warning, and a free port.
	OpsAddr string `form:"address or off" env:"OPS_ADDR" envDefault:"127.0.0.1:9090"`
}

// Log is how a process logs.
type Log struct {
	// Lowest level that is written.
	Level slog.Level `env:"LEVEL" envDefault:"info" oneof:"debug,info,warn,error"`
	// auto is coloured text on a terminal and JSON elsewhere.
	Format string `env:"FORMAT" envDefault:"auto" oneof:"auto,text,json"`
}

// Alerts are about breakers and jobs. Without a receiver there are none; see [Alerts.Enabled].
type Alerts struct {
	// Bot token (`xoxb-…`) of the Slack app that posts alerts, together with SLACK_CHANNEL.
	SlackBotToken Secret `form:"token" env:"SLACK_BOT_TOKEN" example:"xoxb-replace-me"`
	// Channel that alerts are posted to: `#publishing` or `C0123ABCD`.
	SlackChannel string `form:"channel" env:"SLACK_CHANNEL" example:"#publishing"`
	// Incoming webhook of Slack: short separate messages. With a bot token, for what the token
	// could not deliver.
	SlackWebhookURL Secret `form:"receiver" env:"SLACK_WEBHOOK_URL" example:"https://hooks.slack.com/services/replace/me"`
	// Base address of Slack's API; for tests.
	SlackAPIURL string `form:"receiver" env:"SLACK_API_URL" envDefault:"https://slack.com/api/"`
	// A breaker open for longer than this pages on-call; `off` or 0: none.
	OpenTooLong OffDuration `env:"ALERT_OPEN_TOO_LONG" envDefault:"15m" min:"0s"`
	// Whom the page mentions in Slack: `@name`, `@here`, `@channel`, `@everyone`, the id of a
	// person or user group (`U…`, `W…`, `S…`), or Slack's form of one (`<@U…>`,
	// `<!subteam^S…>`, `<!here>`).
	OncallMention string `form:"mention" env:"ALERT_ONCALL_MENTION" example:"@oncall"`
	// Integration key (Events API v2) of the PagerDuty service that is paged.
	PagerDutyRoutingKey Secret `env:"PAGERDUTY_ROUTING_KEY" example:"replace0me0with0the0routing0key0"`
	// URL that PagerDuty events are posted to; in the EU region one on
	// events.eu.pagerduty.com.
	PagerDutyAPIURL string `form:"receiver" env:"PAGERDUTY_API_URL" envDefault:"https://events.pagerduty.com/v2/enqueue"`
}

// API is how the HTTP API and the dashboard are served.
type API struct {
	// Address of the HTTP API and the dashboard of `tidegate api`. One that is not loopback
	// needs API_TOKENS_FILE.
	ListenAddr string `form:"address" env:"LISTEN_ADDR" envDefault:"127.0.0.1:8080"`
	// File with the API's tokens, which `tidegate token new` writes; read again when it
	// changes. Not set: every caller that reaches LISTEN_ADDR has all rights.
	TokensFile string `env:"API_TOKENS_FILE" example:"/etc/tidegate/api-tokens.json"`
	// Where browsers and APIs reach `tidegate api`: the base of the links in alerts, and of the `{{ callback }}` of
	// requests, which workers put into them.
	PublicURL string `form:"receiver" env:"PUBLIC_URL" example:"https://tidegate.example.com"`
}

// Millis is written as a whole number of milliseconds; 0 is not set.
type Millis time.Duration

// Secs is written as a whole number of seconds.
type Secs time.Duration

// OffDuration is a duration that writes 0 as off.
type OffDuration time.Duration

func (m Millis) count() int64 { return time.Duration(m).Milliseconds() }

// Hosts are hosts, with a port or without.
type Hosts []string

// HeaderNames are names of headers.
type HeaderNames []string

// Enabled reports whether there is a receiver of alerts: Slack (bot token and channel, or a
// webhook) or PagerDuty.
func (a Alerts) Enabled() bool { return a.slack() || a.PagerDutyRoutingKey != "" }

func (a Alerts) slack() bool {
	return a.SlackBotToken != "" && a.SlackChannel != "" || a.SlackWebhookURL != ""
}

// CallbackSecrets returns the secrets of CALLBACK_SECRET, which commas or spaces separate.
func (d Destination) CallbackSecrets() []Secret { return secretsOf(d.CallbackSecret) }

// sendsBasic reports whether tokens are sent as user:password.
func (d Destination) sendsBasic() bool {
	return d.AuthQuery == "" && strings.EqualFold(d.AuthScheme, "Basic")
}

// secretsOf returns secrets that commas or spaces separate.
func secretsOf(list Secret) []Secret {
	var out []Secret
	for _, one := range strings.FieldsFunc(list.Reveal(), func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		out = append(out, Secret(one))
	}
	return out
}
