package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrint(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _ := load(t,
		"REDIS_URL=redis-sentinel://app:hunter2@h1,h2/0?master=main&sentinel_password=hunter2",
		"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items?api_key=hunter2&v=1",
		"DESTINATION_0_AUTH_TOKEN_FILE="+token, "DESTINATION_0_SIGN_SECRET_FILE="+token, "DESTINATION_0_TIMEOUT=90s",
		"DESTINATION_0_HEADERS=X-Api-Key:hunter2,Accept:text/plain",
		"DESTINATION_0_CALLBACK_URL=https://app.example.com/hooks?token=hunter2",
		"DESTINATION_0_CALLBACK_SECRET=whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjItMTIzNDU=",
		"DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD=1", "DESTINATION_0_RATE=60/h",
		"CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=1.5", "JOB_RETENTION=7d",
		"SLACK_BOT_TOKEN_FILE="+token, "SLACK_CHANNEL=#ops", "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/hunter2",
		"SLACK_API_URL=http://127.0.0.1:9999/api", "PAGERDUTY_ROUTING_KEY=hunter2", "PAGERDUTY_API_URL=https://pd.example/v2?key=hunter2",
		"ALERT_OPEN_TOO_LONG=off", "ALERT_FAILED_BURST=50/300s", "PUBLIC_URL=https://ops.example.com/")
	var out bytes.Buffer
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `REDIS_URL=redis-sentinel://app:[redacted]@h1,h2/0?master=main&sentinel_password=[redacted]  # set
REDIS_NAMESPACE=tidegate  # default
DESTINATION_0_NAME=shop  # set
DESTINATION_0_PRESET=  # default
DESTINATION_0_URL=https://api.example.com/items?api_key=[redacted]&v=1  # set
DESTINATION_0_KEY_PATTERN=  # default
DESTINATION_0_METHOD=POST  # default
DESTINATION_0_TIMEOUT=1m30s  # set
DESTINATION_0_CONCURRENCY=10  # default
DESTINATION_0_AUTH_TOKEN=[redacted]  # file
DESTINATION_0_AUTH_TOKENS_FILE=  # default
DESTINATION_0_OAUTH_TOKEN_URL=  # default
DESTINATION_0_OAUTH_CLIENT_ID=  # default
DESTINATION_0_OAUTH_CLIENT_SECRET=  # default
DESTINATION_0_OAUTH_SCOPES=  # default
DESTINATION_0_OAUTH_REFRESH_TOKENS_FILE=  # default
DESTINATION_0_AUTH_HEADER=Authorization  # default
DESTINATION_0_AUTH_SCHEME=Bearer  # default
DESTINATION_0_AUTH_QUERY=  # default
DESTINATION_0_SIGN_SECRET=[redacted]  # file
DESTINATION_0_SIGN_HEADER=X-Signature-256  # default
DESTINATION_0_HEADERS=Accept:text/plain,X-Api-Key:[redacted]  # set
DESTINATION_0_RATE_LIMITED_STATUS=429  # default
DESTINATION_0_PERMANENT_STATUS=400,401,404,409,410,413,415,422  # default
DESTINATION_0_ANSWERS_FILE=  # default
DESTINATION_0_TRUST_OUTCOME=false  # default
DESTINATION_0_HINTS=retry-after,ratelimit,x-ratelimit  # default
DESTINATION_0_RATE=60/1h  # set
DESTINATION_0_BURST=1  # default
DESTINATION_0_KEY_RATE=  # default
DESTINATION_0_FLEET_CONCURRENCY=  # default
DESTINATION_0_KEY_CONCURRENCY=  # default
DESTINATION_0_KEY_BY=  # default
DESTINATION_0_MAX_REFUSED_ALONE=10  # default
DESTINATION_0_RESPONSE_BODY_BYTES=4096  # default
DESTINATION_0_CALLBACK_URL=https://app.example.com/hooks?token=[redacted]  # set
DESTINATION_0_CALLBACK_SECRET=[redacted]  # set
DESTINATION_0_CIRCUIT_BREAKER_ENABLED=true  # default
DESTINATION_0_CIRCUIT_BREAKER_FAILURE_THRESHOLD=1  # set
DESTINATION_0_CIRCUIT_BREAKER_OUTAGE_THRESHOLD=10  # default
DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS=300000  # default
DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=1.5  # default
DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_JITTER=0.1  # default
DESTINATION_0_CIRCUIT_BREAKER_MAX_COOLDOWN_MS=3600000  # default
DESTINATION_0_CIRCUIT_BREAKER_TRUST_HINTS=true  # default
DESTINATION_0_CIRCUIT_BREAKER_LEARN=true  # default
DESTINATION_0_CIRCUIT_BREAKER_PROBE_TIMEOUT_MS=95000  # default
CIRCUIT_BREAKER_ENABLED=true  # default
CIRCUIT_BREAKER_FAILURE_THRESHOLD=3  # default
CIRCUIT_BREAKER_OUTAGE_THRESHOLD=10  # default
CIRCUIT_BREAKER_COOLDOWN_MS=300000  # default
CIRCUIT_BREAKER_COOLDOWN_MULTIPLIER=1.5  # set
CIRCUIT_BREAKER_COOLDOWN_JITTER=0.1  # default
CIRCUIT_BREAKER_MAX_COOLDOWN_MS=3600000  # default
CIRCUIT_BREAKER_TRUST_HINTS=true  # default
CIRCUIT_BREAKER_LEARN=true  # default
CIRCUIT_BREAKER_PROBE_TIMEOUT_MS=  # default
RETRY_MAX_RETRIES_LIMIT=10  # default
RETRY_MAX_DELAY_LIMIT=3600  # default
RETRY_LOOP_INTERVAL_MS=1000  # default
JOB_RETENTION=168h  # set
JOB_RETENTION_FAILED=2160h  # default
MAX_CRASHES=3  # default
MAX_PAYLOAD_BYTES=262144  # default
IDEMPOTENCY_SCOPE=job  # default
CREDENTIALS_KEY=  # default
SHUTDOWN_TIMEOUT=30s  # default
OPS_ADDR=127.0.0.1:9090  # default
LOG_LEVEL=info  # default
LOG_FORMAT=auto  # default
SLACK_BOT_TOKEN=[redacted]  # file
SLACK_CHANNEL=#ops  # set
SLACK_WEBHOOK_URL=[redacted]  # set
SLACK_API_URL=http://127.0.0.1:9999/api/  # set
ALERT_OPEN_TOO_LONG=off  # set
ALERT_ONCALL_MENTION=  # default
PAGERDUTY_ROUTING_KEY=[redacted]  # set
PAGERDUTY_API_URL=https://pd.example/v2?key=[redacted]  # set
ALERT_FAILED_BURST=50/5m  # set
ALERT_OLDEST_PENDING=off  # default
LISTEN_ADDR=127.0.0.1:8080  # default
API_TOKENS_FILE=  # default
PUBLIC_URL=https://ops.example.com  # set
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	document, err := json.Marshal(cfg.Document())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(document, []byte("hunter2")) {
		t.Errorf("document shows a secret: %s", document)
	}
	var decoded Document
	if err := json.Unmarshal(document, &decoded); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, e := range decoded.Items {
		fmt.Fprintf(&lines, "%s=%s  # %s\n", e.Name, e.Value, e.Source)
	}
	if diff := cmp.Diff(want, lines.String()); diff != "" {
		t.Errorf("document differs from Print (-print +document):\n%s", diff)
	}
	if e := decoded.Items[9]; e.Name != "DESTINATION_0_AUTH_TOKEN" || !e.Secret {
		t.Errorf("entry 9: %+v", e)
	}
}

// TestConfigHidesSecrets prints a Config in every way that a debug line might.
func TestConfigHidesSecrets(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, with("REDIS_URL=redis://:hunter2@h/0", "DESTINATION_0_AUTH_TOKEN=hunter2",
		"SLACK_BOT_TOKEN=xoxb-hunter2", "SLACK_CHANNEL=ops", "SLACK_WEBHOOK_URL=https://h/hunter2", "PAGERDUTY_ROUTING_KEY=hunter2")...)
	document, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("config", "cfg", *cfg, "secret", cfg.RedisURL)
	for name, text := range map[string]string{
		"%v": fmt.Sprintf("%v", *cfg), "%+v": fmt.Sprintf("%+v", *cfg), "%#v": fmt.Sprintf("%#v", *cfg),
		"json": string(document), "slog": logged.String(),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows a secret: %s", name, text)
		}
	}
}

// Tokens stand in paths and parameters of URLs, and in headers of any name.
func TestPrintMasksAllThatIsSecret(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "DESTINATION_0_NAME=shop",
		"DESTINATION_0_URL=https://api.example.com/bot123456:ABC-DEF1234ghIkl/sendMessage?sig=hunter2&chat=hunter2&v=1",
		"DESTINATION_0_HEADERS=X-Client:hunter2,Accept:text/plain,X-Version:v2",
		"DESTINATION_0_CALLBACK_URL=https://ops.example.com/hooks/B0123456789hunter2XYZ",
		"DESTINATION_0_CALLBACK_SECRET=whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjItMTIzNDU=")
	var out bytes.Buffer
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"DESTINATION_0_URL=https://api.example.com/[redacted]/sendMessage?sig=[redacted]&chat=[redacted]&v=1  # set\n",
		"DESTINATION_0_HEADERS=Accept:text/plain,X-Client:[redacted],X-Version:v2  # set\n",
		"DESTINATION_0_CALLBACK_URL=https://ops.example.com/hooks/[redacted]  # set\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in\n%s", want, out.String())
		}
	}
	for _, e := range cfg.entries() {
		if strings.Contains(e.Value, Redacted) && !e.Secret {
			t.Errorf("%s=%s is not marked as secret", e.Name, e.Value)
		}
	}
}
