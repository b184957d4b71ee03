package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contract is every variable that users rely on by name.
var contract = strings.Fields(`
	REDIS_URL REDIS_NAMESPACE
	DESTINATION_0_NAME DESTINATION_0_PRESET DESTINATION_0_URL DESTINATION_0_METHOD DESTINATION_0_TIMEOUT DESTINATION_0_CONCURRENCY
	DESTINATION_0_AUTH_TOKEN DESTINATION_0_AUTH_TOKENS_FILE DESTINATION_0_HEADERS
	DESTINATION_0_RATE_LIMITED_STATUS DESTINATION_0_PERMANENT_STATUS
	DESTINATION_0_ANSWERS_FILE DESTINATION_0_TRUST_OUTCOME DESTINATION_0_HINTS DESTINATION_0_RATE DESTINATION_0_BURST
	DESTINATION_0_KEY_RATE DESTINATION_0_FLEET_CONCURRENCY DESTINATION_0_KEY_CONCURRENCY
	DESTINATION_0_CALLBACK_URL DESTINATION_0_CALLBACK_SECRET
	DESTINATION_0_CIRCUIT_BREAKER_ENABLED DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD
	DESTINATION_0_CIRCUIT_BREAKER_OUTAGE_THRESHOLD
	DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER
	DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_JITTER DESTINATION_0_CIRCUIT_BREAKER_MAX_COOLDOWN_MS DESTINATION_0_CIRCUIT_BREAKER_TRUST_HINTS
	DESTINATION_0_CIRCUIT_BREAKER_LEARN DESTINATION_0_CIRCUIT_BREAKER_EARLY_TESTS
	DESTINATION_0_CIRCUIT_BREAKER_PROBE_TIMEOUT_MS
	CIRCUIT_BREAKER_ENABLED CIRCUIT_BREAKER_FAILURE_THRESHOLD CIRCUIT_BREAKER_OUTAGE_THRESHOLD CIRCUIT_BREAKER_COOLDOWN_MS
	CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER CIRCUIT_BREAKER_COOLDOWN_JITTER CIRCUIT_BREAKER_MAX_COOLDOWN_MS CIRCUIT_BREAKER_TRUST_HINTS
	CIRCUIT_BREAKER_LEARN CIRCUIT_BREAKER_EARLY_TESTS CIRCUIT_BREAKER_PROBE_TIMEOUT_MS
	RETRY_MAX_RETRIES_LIMIT RETRY_MAX_DELAY_LIMIT RETRY_LOOP_INTERVAL_MS
	JOB_RETENTION JOB_RETENTION_FAILED MAX_CRASHES MAX_PAYLOAD_BYTES IDEMPOTENCY_SCOPE
	OPS_ADDR SHUTDOWN_TIMEOUT LOG_LEVEL LOG_FORMAT
	DESTINATION_0_KEY_PATTERN DESTINATION_0_AUTH_HEADER DESTINATION_0_AUTH_SCHEME DESTINATION_0_AUTH_QUERY
	DESTINATION_0_SIGN_SECRET DESTINATION_0_SIGN_HEADER DESTINATION_0_KEY_BY DESTINATION_0_AUTH_POOL_FILE DESTINATION_0_ORDER DESTINATION_0_ON_FAIL DESTINATION_0_MAX_REFUSED_ALONE DESTINATION_0_RESPONSE_BODY_BYTES
	CREDENTIALS_KEY DESTINATION_0_OAUTH_TOKEN_URL DESTINATION_0_OAUTH_CLIENT_ID DESTINATION_0_OAUTH_CLIENT_SECRET
	DESTINATION_0_OAUTH_SCOPES DESTINATION_0_OAUTH_REFRESH_TOKENS_FILE
	SLACK_BOT_TOKEN SLACK_CHANNEL SLACK_WEBHOOK_URL SLACK_API_URL
	ALERT_OPEN_TOO_LONG ALERT_ONCALL_MENTION PAGERDUTY_ROUTING_KEY PAGERDUTY_API_URL
	LISTEN_ADDR API_TOKENS_FILE PUBLIC_URL DESTINATIONS_FILE`)

var exampleLine = regexp.MustCompile(`^(#?)([A-Z][A-Z0-9_]*)=(.*)$`)

// readExample returns the assignments of config.example.env; with all of them,
// also those that are commented out.
func readExample(t *testing.T, all bool) (environ, names []string) {
	t.Helper()
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		m := exampleLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			if !strings.HasPrefix(line, "# ") && line != "#\n" && line != "\n" {
				t.Errorf("neither comment nor assignment: %q", line)
			}
			continue
		}
		if m[1] == "" || all {
			environ = append(environ, m[2]+"="+m[3])
			names = append(names, m[2])
		}
	}
	return environ, names
}

func TestExampleLoadsAsItIs(t *testing.T) {
	t.Parallel()
	environ, names := readExample(t, false)
	if diff := cmp.Diff([]string{"REDIS_URL", "DESTINATION_0_NAME", "DESTINATION_0_URL", "DESTINATION_0_RETRY"}, names); diff != "" {
		t.Errorf("active assignments (-want +got):\n%s", diff)
	}
	cfg, warnings := load(t, environ...)
	if warnings != nil {
		t.Errorf("warnings: %q", warnings)
	}
	if err := cfg.RequireDestinations(); err != nil {
		t.Error(err)
	}
}

// All values that the example shows are allowed, and go together.
func TestExampleLoadsUncommented(t *testing.T) {
	t.Parallel()
	environ, names := readExample(t, true)
	for _, name := range contract {
		if !slices.Contains(names, name) {
			t.Errorf("config.example.env has no %s", name)
		}
	}
	// The files that have to be there.
	for name, content := range map[string]string{
		"DESTINATIONS_FILE": "limits: {openai-requests: {rate: 500/1m}, openai-tokens: {rate: 9/1m, unit: tokens}}\n", "DESTINATION_0_AUTH_TOKENS_FILE": `{"alice":"a1"}`, "DESTINATION_0_AUTH_POOL_FILE": `{"app-1":"a1"}`, "DESTINATION_0_ANSWERS_FILE": `[{"when": "status == 409", "then": "ok"}]`,
	} {
		environ[slices.Index(names, name)] = name + "=" + writeFile(t, content, 0o600)
	}
	// A destination has one kind of tokens.
	environ = slices.DeleteFunc(environ, func(entry string) bool {
		return strings.HasPrefix(entry, "DESTINATION_0_OAUTH_") || strings.HasPrefix(entry, "DESTINATION_0_AUTH_POOL_FILE")
	})
	if _, warnings := load(t, environ...); len(warnings) != 0 {
		t.Errorf("warnings:\n%s", strings.Join(warnings, "\n"))
	}
}
