package config

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/breaker"
)

// ignoreEntries leaves out what Print prints; it has tests of its own.
var ignoreEntries = cmpopts.IgnoreUnexported(Config{})

func load(t *testing.T, environ ...string) (*Config, []string) {
	t.Helper()
	cfg, warnings, err := Load(environ)
	if err != nil {
		t.Fatalf("Load(%q):\n%v", environ, err)
	}
	return cfg, texts(warnings)
}

func texts(warnings []Warning) []string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.String())
	}
	return out
}

// one is the smallest working destination.
var one = []string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items"}

func with(more ...string) []string { return append(slices.Clone(one), more...) }

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	cfg, warnings := load(t, one...)
	global := Breaker{
		Enabled:            true,
		FailureThreshold:   3,
		OutageThreshold:    10,
		Cooldown:           Millis(5 * time.Minute),
		CooldownMultiplier: 1,
		CooldownJitter:     0.1,
		MaxCooldown:        Millis(time.Hour),
		TrustHints:         true,
		Learn:              true,
	}
	own := global
	own.ProbeTimeout = Millis(35 * time.Second)
	want := &Config{
		Redis: Redis{RedisURL: "redis://127.0.0.1:6379/0", RedisNamespace: "tidegate"},
		Destinations: []Destination{{
			Name:            "shop",
			URL:             "https://api.example.com/items",
			Method:          "POST",
			AuthHeader:      "Authorization",
			AuthScheme:      "Bearer",
			SignHeader:      "X-Signature-256",
			MaxRefusedAlone: 10, ResponseBodyBytes: 4096,
			Timeout:           30 * time.Second,
			Concurrency:       10,
			RateLimitedStatus: []int{429},
			PermanentStatus:   []int{400, 401, 404, 409, 410, 413, 415, 422},
			Hints:             []string{"retry-after", "ratelimit", "x-ratelimit"},
			Breaker:           own,
		}},
		Breaker: global,
		Retry:   Retry{MaxRetriesLimit: 10, MaxDelayLimit: Secs(time.Hour), LoopInterval: Millis(time.Second)},
		Jobs: Jobs{
			JobRetention:       24 * time.Hour,
			JobRetentionFailed: 2160 * time.Hour,
			MaxCrashes:         3,
			MaxPayloadBytes:    262144,
			IdempotencyScope:   "job",
		},
		Worker: Worker{ShutdownTimeout: 30 * time.Second, OpsAddr: "127.0.0.1:9090"},
		Log:    Log{Level: slog.LevelInfo, Format: "auto"},
		Alerts: Alerts{
			SlackAPIURL:     "https://slack.com/api/",
			OpenTooLong:     OffDuration(15 * time.Minute),
			PagerDutyAPIURL: "https://events.pagerduty.com/v2/enqueue",
		},
		API: API{ListenAddr: "127.0.0.1:8080"},
	}
	if diff := cmp.Diff(want, cfg, ignoreEntries); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if warnings != nil {
		t.Errorf("warnings: %q", warnings)
	}
}

func TestLoadEveryVariable(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, `{"alice":"hunter2"}`, 0o600)
	cfg, warnings := load(t,
		"REDIS_URL=rediss://user:pw@redis.example:6380/2", "REDIS_NAMESPACE=shop-eu",
		"DESTINATION_0_NAME=shop",
		"DESTINATION_0_URL= http://127.0.0.1:8080/items ",
		"DESTINATION_0_METHOD=put",
		"DESTINATION_0_KEY_PATTERN=[a-z]{1,8}|x-.*",
		"DESTINATION_0_AUTH_HEADER=x-api-key",
		"DESTINATION_0_AUTH_SCHEME=None",
		"DESTINATION_0_SIGN_SECRET=shared\n",
		"DESTINATION_0_SIGN_HEADER=X-Hub-Signature",
		"DESTINATION_0_RESPONSE_BODY_BYTES=1048576",
		"DESTINATION_0_TIMEOUT=1m30s",
		"DESTINATION_0_CONCURRENCY=25",
		"DESTINATION_0_AUTH_TOKEN=abc.def-123\n",
		"DESTINATION_0_AUTH_TOKENS_FILE= "+tokens,
		"DESTINATION_0_HEADERS=x-a: 1 ,X-B:c:d,X-A:2",
		"DESTINATION_0_HINTS=X-RateLimit, retry-after,x-ratelimit",
		"DESTINATION_0_CALLBACK_URL=https://app.example.com/hooks?from=tidegate",
		"DESTINATION_0_CALLBACK_SECRET=whsec_cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU=, whsec_YW5vdGhlci1zZWNyZXQtb2YtZW5vdWdo",
		"LISTEN_ADDR=:8443",
		"API_TOKENS_FILE=/run/secrets/tokens.json",
		"DESTINATION_0_RATE=600/10m,5000/d@Europe/Paris", "DESTINATION_0_KEY_RATE=10/s:3,100/1h",
		"DESTINATION_0_BURST=5",
		"DESTINATION_0_RATE_LIMITED_STATUS=429, 403,429",
		"DESTINATION_0_PERMANENT_STATUS=400",
		"DESTINATION_0_CIRCUIT_BREAKER_ENABLED=false",
		"DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS=2000",
		"DESTINATION_1_NAME=other",
		"DESTINATION_1_URL=https://{key}.other.example",
		"DESTINATION_1_KEY_PATTERN=.+",
		"DESTINATION_1_AUTH_QUERY=api_key",
		"DESTINATION_1_HINTS=None",
		"DESTINATION_1_RATE=10/s",
		"DESTINATION_1_CIRCUIT_BREAKER_PROBE_TIMEOUT_MS=60000",
		"DESTINATION_1_CIRCUIT_BREAKER_COOLDOWN_JITTER=0",
		"CIRCUIT_BREAKER_FAILURE_THRESHOLD=5",
		"CIRCUIT_BREAKER_COOLDOWN_MS=1000",
		"CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=2.5",
		"CIRCUIT_BREAKER_COOLDOWN_JITTER=1",
		"CIRCUIT_BREAKER_MAX_COOLDOWN_MS=4000",
		"CIRCUIT_BREAKER_TRUST_HINTS=FALSE",
		"CIRCUIT_BREAKER_LEARN=FALSE",
		"CIRCUIT_BREAKER_PROBE_TIMEOUT_MS=95000",
		"RETRY_MAX_RETRIES_LIMIT=20",
		"RETRY_MAX_DELAY_LIMIT=7200",
		"RETRY_LOOP_INTERVAL_MS=10",
		"JOB_RETENTION=0s",
		"JOB_RETENTION_FAILED=30d",
		"MAX_CRASHES=1",
		"MAX_PAYLOAD_BYTES=16777216",
		"IDEMPOTENCY_SCOPE=attempt",
		"SHUTDOWN_TIMEOUT=90s",
		"LOG_LEVEL=WARN",
		"LOG_FORMAT=json",
		"SLACK_BOT_TOKEN=xoxb-1-a\n",
		"SLACK_CHANNEL= #ops ",
		"SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T0/B0/x",
		"SLACK_API_URL=http://127.0.0.1:9999/api",
		"ALERT_OPEN_TOO_LONG=2d",
		"ALERT_ONCALL_MENTION= <!subteam^S0123ABCD>",
		"PAGERDUTY_ROUTING_KEY=0123456789abcdef0123456789ABCDEF",
		"PAGERDUTY_API_URL=http://localhost:9998/v2/enqueue?x=1",
		"ALERT_FAILED_BURST=50/5m",
		"ALERT_OLDEST_PENDING=1h",
		"PUBLIC_URL=https://ops.example.com/tidegate//",
	)
	global := Breaker{
		Enabled:            true,
		FailureThreshold:   5,
		OutageThreshold:    10,
		Cooldown:           Millis(time.Second),
		CooldownMultiplier: 2.5,
		CooldownJitter:     1,
		MaxCooldown:        Millis(4 * time.Second),
		ProbeTimeout:       Millis(95 * time.Second),
	}
	first, second := global, global
	first.Enabled, first.Cooldown = false, Millis(2*time.Second)
	second.ProbeTimeout, second.CooldownJitter = Millis(time.Minute), 0
	want := &Config{
		Redis: Redis{RedisURL: "rediss://user:pw@redis.example:6380/2", RedisNamespace: "shop-eu"},
		Destinations: []Destination{
			{
				Name:            "shop",
				URL:             "http://127.0.0.1:8080/items",
				Method:          "PUT",
				KeyPattern:      "[a-z]{1,8}|x-.*",
				AuthHeader:      "x-api-key",
				AuthScheme:      "None",
				SignSecret:      "shared",
				SignHeader:      "X-Hub-Signature",
				MaxRefusedAlone: 10, ResponseBodyBytes: 1 << 20,
				Timeout:           90 * time.Second,
				Concurrency:       25,
				AuthToken:         "abc.def-123",
				AuthTokensFile:    tokens,
				CallbackURL:       "https://app.example.com/hooks?from=tidegate",
				CallbackSecret:    "whsec_cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU=, whsec_YW5vdGhlci1zZWNyZXQtb2YtZW5vdWdo",
				Headers:           http.Header{"X-A": {"1", "2"}, "X-B": {"c:d"}},
				RateLimitedStatus: []int{403, 429},
				PermanentStatus:   []int{400},
				Hints:             []string{"x-ratelimit", "retry-after"},
				Rate:              breaker.Rates{{Calls: 600, Per: 10 * time.Minute, Burst: 5}, {Calls: 5000, Per: 24 * time.Hour, Zone: "Europe/Paris"}},
				Burst:             5,
				KeyRate:           breaker.Rates{{Calls: 10, Per: time.Second, Burst: 3}, {Calls: 100, Per: time.Hour}},
				Breaker:           first,
			},
			{
				Name:            "other",
				URL:             "https://{key}.other.example",
				KeyPattern:      ".+",
				Method:          "POST",
				AuthHeader:      "Authorization",
				AuthScheme:      "Bearer",
				AuthQuery:       "api_key",
				SignHeader:      "X-Signature-256",
				MaxRefusedAlone: 10, ResponseBodyBytes: 4096,
				Timeout:           30 * time.Second,
				Concurrency:       10,
				RateLimitedStatus: []int{429},
				PermanentStatus:   []int{400, 401, 404, 409, 410, 413, 415, 422},
				Hints:             []string{},
				Rate:              breaker.Rates{{Calls: 10, Per: time.Second, Burst: 1}},
				Burst:             1,
				Breaker:           second,
			},
		},
		Breaker: global,
		Retry:   Retry{MaxRetriesLimit: 20, MaxDelayLimit: Secs(2 * time.Hour), LoopInterval: Millis(10 * time.Millisecond)},
		Jobs: Jobs{
			JobRetention:       0,
			JobRetentionFailed: 30 * 24 * time.Hour,
			MaxCrashes:         1,
			MaxPayloadBytes:    16777216,
			IdempotencyScope:   "attempt",
		},
		Worker: Worker{ShutdownTimeout: 90 * time.Second, OpsAddr: "127.0.0.1:9090"},
		Log:    Log{Level: slog.LevelWarn, Format: "json"},
		Alerts: Alerts{
			SlackBotToken:       "xoxb-1-a",
			SlackChannel:        "#ops",
			SlackWebhookURL:     "https://hooks.slack.com/services/T0/B0/x",
			SlackAPIURL:         "http://127.0.0.1:9999/api/",
			OpenTooLong:         OffDuration(48 * time.Hour),
			OncallMention:       "<!subteam^S0123ABCD>",
			PagerDutyRoutingKey: "0123456789abcdef0123456789ABCDEF",
			PagerDutyAPIURL:     "http://localhost:9998/v2/enqueue?x=1",
			FailedBurst:         Burst{Jobs: 50, Within: 5 * time.Minute},
			OldestPending:       OffDuration(time.Hour),
		},
		API: API{ListenAddr: ":8443", TokensFile: "/run/secrets/tokens.json", PublicURL: "https://ops.example.com/tidegate"},
	}
	secrets := []Secret{"whsec_cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU=", "whsec_YW5vdGhlci1zZWNyZXQtb2YtZW5vdWdo"}
	if diff := cmp.Diff(secrets, cfg.Destinations[0].CallbackSecrets()); diff != "" {
		t.Errorf("secrets of callbacks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, cfg, ignoreEntries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What is set besides goes together.
	var warned []string
	for _, w := range warnings {
		name, _, _ := strings.Cut(w, ": ")
		warned = append(warned, name)
	}
	if diff := cmp.Diff([]string{"DESTINATION_0_KEY_RATE", "DESTINATION_0_RATE"}, warned); diff != "" {
		t.Errorf("variables that are warned of (-want +got):\n%s", diff)
	}
}

func TestLoadSetButEmpty(t *testing.T) {
	t.Parallel()
	environ := slices.Clone(one)
	for _, v := range table() {
		if !v.required {
			environ = append(environ, strings.Replace(v.name, "<i>", "0", 1)+"= ")
		}
	}
	cfg, warnings := load(t, environ...)
	want, _ := load(t, one...)
	if diff := cmp.Diff(want, cfg, ignoreEntries); diff != "" {
		t.Errorf("empty variables changed the defaults (-default +got):\n%s", diff)
	}
	wantWarnings := []string{
		"CREDENTIALS_KEY: is set but empty; it counts as not set",
		"DESTINATION_0_AUTH_TOKEN: is set but empty; it counts as not set",
		"DESTINATION_0_CALLBACK_SECRET: is set but empty; it counts as not set",
		"DESTINATION_0_HEADERS: is set but empty; it counts as not set",
		"DESTINATION_0_OAUTH_CLIENT_SECRET: is set but empty; it counts as not set",
		"DESTINATION_0_SIGN_SECRET: is set but empty; it counts as not set",
		"PAGERDUTY_ROUTING_KEY: is set but empty; it counts as not set",
		"REDIS_URL: is set but empty; it counts as not set",
		"SLACK_BOT_TOKEN: is set but empty; it counts as not set",
		"SLACK_WEBHOOK_URL: is set but empty; it counts as not set",
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestLoadSecretFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, redis := write("token", "hunter2\r\n\n"), write("redis", "redis://:hunter2@redis.example/1\n")
	headers := write("headers", "X-Api-Key:hunter2\n")
	empty, large := write("empty", "\n \n"), write("large", strings.Repeat("x", maxSecretFile+1))

	cfg, warnings := load(t, with("DESTINATION_0_AUTH_TOKEN_FILE="+token, "DESTINATION_0_AUTH_TOKEN=",
		"REDIS_URL_FILE="+redis, "DESTINATION_0_HEADERS_FILE="+headers)...)
	if got := cfg.Destinations[0].AuthToken.Reveal(); got != "hunter2" {
		t.Errorf("token %q", got)
	}
	if got := cfg.RedisURL.Reveal(); got != "redis://:hunter2@redis.example/1" {
		t.Errorf("Redis URL %q", got)
	}
	if got := cfg.Destinations[0].Headers.Get("X-Api-Key"); got != "hunter2" {
		t.Errorf("header %q", got)
	}
	if warnings != nil {
		t.Errorf("warnings %q", warnings)
	}

	missing := filepath.Join(dir, "missing")
	_, _, err := Load([]string{
		"DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://a.example", "DESTINATION_0_AUTH_TOKEN=hunter2", "DESTINATION_0_AUTH_TOKEN_FILE=" + token,
		"DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://a.example", "DESTINATION_1_AUTH_TOKEN_FILE=" + missing,
		"DESTINATION_2_NAME=c", "DESTINATION_2_URL=https://a.example", "DESTINATION_2_AUTH_TOKEN_FILE=" + empty,
		"DESTINATION_3_NAME=d", "DESTINATION_3_URL=https://a.example", "DESTINATION_3_AUTH_TOKEN_FILE=" + dir,
		"DESTINATION_4_NAME=e", "DESTINATION_4_URL=https://a.example", "DESTINATION_4_URL_FILE=" + token,
		"REDIS_URL_FILE=" + large,
	})
	quoted := func(path string) string { return `"` + path + `"` }
	want := strings.Join([]string{
		"DESTINATION_0_AUTH_TOKEN: is set, and so is DESTINATION_0_AUTH_TOKEN_FILE; unset one of the two",
		"DESTINATION_1_AUTH_TOKEN_FILE: cannot read file " + quoted(missing) + ": no such file or directory; check the file and its permissions",
		"DESTINATION_2_AUTH_TOKEN_FILE: file " + quoted(empty) + " is empty; check the file and its permissions",
		"DESTINATION_3_AUTH_TOKEN_FILE: cannot read file " + quoted(dir) + ": is a directory; check the file and its permissions",
		"DESTINATION_4_URL_FILE: is not a variable of Tidegate; only a secret can come from a file: set DESTINATION_4_URL",
		"REDIS_URL_FILE: file " + quoted(large) + " is larger than 65536 bytes; check the file and its permissions",
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadWarnings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		environ []string
		want    []string
	}{
		{
			"near misses",
			[]string{"REDIS_URI=x", "LOGLEVEL=x", "redis_url=x", "DESTINATIONS_0_NAME=x", "MAX_PAYLOAD_BYTE=1", "REDIS_URL_FILES=x"},
			[]string{
				"DESTINATIONS_0_NAME: is not a variable of Tidegate; did you mean DESTINATION_0_NAME?",
				"LOGLEVEL: is not a variable of Tidegate; did you mean LOG_LEVEL?",
				"MAX_PAYLOAD_BYTE: is not a variable of Tidegate; did you mean MAX_PAYLOAD_BYTES?",
				"REDIS_URI: is not a variable of Tidegate; did you mean REDIS_URL?",
				"REDIS_URL_FILES: is not a variable of Tidegate; did you mean REDIS_URL_FILE?",
				"redis_url: is not a variable of Tidegate; did you mean REDIS_URL?",
			},
		},
		{"what orchestrators and shells set", []string{
			"REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_SERVICE_HOST=10.0.0.1", "REDIS_SERVICE_PORT=6379", "REDIS_PORT_6379_TCP=tcp://10.0.0.1:6379",
			"REDIS_HOST=x", "REDIS_DB=0", "REDIS_TLS=1", "LISTEN_FDS=1", "LISTEN_PID=1", "PATH=/bin", "HOME=/root", "PWD=/", "_=/bin/env",
			"HOSTNAME=x", "JOURNAL_STREAM=8:1", "INVOCATION_ID=x", "PUBLIC_IP=1.2.3.4", "LOG_DIR=/x", "=C:=x", "noequals", "KUBERNETES_PORT=x",
		}, nil},
		{"a rate that nothing keeps", []string{
			"CIRCUIT_BREAKER_ENABLED=false",
			"DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://a.example", "DESTINATION_0_RATE=60/1h",
			"DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://b.example", "DESTINATION_1_RATE=60/1h", "DESTINATION_1_CIRCUIT_BREAKER_ENABLED=true",
			"DESTINATION_2_NAME=c", "DESTINATION_2_URL=https://c.example",
		}, []string{"DESTINATION_0_RATE: is not kept, because the circuit breaker of this destination is off (CIRCUIT_BREAKER_ENABLED): the breaker is what keeps it"}},
		{
			"a concurrency of the fleet that nothing keeps", with("CIRCUIT_BREAKER_ENABLED=false", "DESTINATION_0_FLEET_CONCURRENCY=5"),
			[]string{"DESTINATION_0_FLEET_CONCURRENCY: is not kept, because the circuit breaker of this destination is off (CIRCUIT_BREAKER_ENABLED): the breaker is what keeps it"},
		},
		{
			"a concurrency of keys that nothing keeps", with("CIRCUIT_BREAKER_ENABLED=false", "DESTINATION_0_KEY_CONCURRENCY=5"),
			[]string{"DESTINATION_0_KEY_CONCURRENCY: is not kept, because the circuit breaker of this destination is off (CIRCUIT_BREAKER_ENABLED): the breaker is what keeps it"},
		},
		{
			"a concurrency of keys above the fleet's", with("DESTINATION_0_FLEET_CONCURRENCY=5", "DESTINATION_0_KEY_CONCURRENCY=6"),
			[]string{"DESTINATION_0_KEY_CONCURRENCY: is more than FLEET_CONCURRENCY, 5, which holds for all keys together: it limits nothing"},
		},
		{"a concurrency of keys as large as the fleet's", with("DESTINATION_0_FLEET_CONCURRENCY=5", "DESTINATION_0_KEY_CONCURRENCY=5"), nil},
		{"token in the clear", []string{
			"DESTINATION_0_NAME=a", "DESTINATION_0_URL=http://api.example.com", "DESTINATION_0_AUTH_TOKEN=t",
			"DESTINATION_1_NAME=b", "DESTINATION_1_URL=http://localhost:8080", "DESTINATION_1_AUTH_TOKEN=t",
			"DESTINATION_2_NAME=c", "DESTINATION_2_URL=http://[::1]:8080", "DESTINATION_2_AUTH_TOKEN=t",
			"DESTINATION_3_NAME=d", "DESTINATION_3_URL=http://api.example.com",
		}, []string{"DESTINATION_0_URL: is http: the token of this destination is sent unencrypted; use https if the API has it"}},
		{
			"probe lease", with("DESTINATION_0_TIMEOUT=5s", "CIRCUIT_BREAKER_PROBE_TIMEOUT_MS=5000"),
			[]string{"DESTINATION_0_TIMEOUT: is not shorter than the probe's lease (PROBE_TIMEOUT_MS, 5000): a slow probe may be joined by a second one"},
		},
		{
			"calls that a stop cuts", with("DESTINATION_0_TIMEOUT=45s", "DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://b.example"),
			[]string{"DESTINATION_0_TIMEOUT: 45s is longer than SHUTDOWN_TIMEOUT (30s): a worker that stops cuts calls that the API may have accepted, and they are made again; set SHUTDOWN_TIMEOUT to 45s or more"},
		},
		{
			"embedded",
			[]string{"REDIS_URL=embedded:"},
			[]string{"REDIS_URL: is the embedded Redis: jobs live in this process only and end with it"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, warnings := load(t, tt.environ...); !cmp.Equal(tt.want, warnings) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(tt.want, warnings))
			}
		})
	}
}

func TestRequireDestinations(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t)
	err := cfg.RequireDestinations()
	const want = "DESTINATION_0_NAME: is not set, and no destination is configured; set DESTINATION_0_NAME and DESTINATION_0_URL"
	if err == nil || err.Error() != want {
		t.Errorf("without destinations: %v", err)
	}
	cfg, _ = load(t, one...)
	if err := cfg.RequireDestinations(); err != nil {
		t.Errorf("with one: %v", err)
	}
	if d, ok := cfg.Destination("shop"); !ok || d.Name != "shop" {
		t.Errorf("Destination(shop) = %v, %v", d.Name, ok)
	}
	if _, ok := cfg.Destination("other"); ok {
		t.Error("Destination(other) found")
	}
}

// TestLoadIgnoresTheProcess is not parallel: it changes the process environment.
func TestLoadIgnoresTheProcess(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://elsewhere/0")
	t.Setenv("MAX_CRASHES", "7")
	cfg, _, err := Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.RedisURL.Reveal() != "redis://127.0.0.1:6379/0" || cfg.MaxCrashes != 3 {
		t.Errorf("Load(nil) read the process environment: %s, %d", cfg.RedisURL.Reveal(), cfg.MaxCrashes)
	}
}
