package cli

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/config"
)

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	env := append([]string{"REDIS_URL=redis://:hunter2@127.0.0.1:6380/0", "DESTINATION_0_AUTH_TOKEN=hunter2", "DESTINATION_0_CONCURRENCY=7", "DESTINATION_0_RETRY=none"}, shop...)

	out := runIn(t, env, "", "config", "check").ok(t)
	for _, line := range []string{
		"DESTINATION_0_NAME=shop  # set", "DESTINATION_0_CONCURRENCY=7  # set", "DESTINATION_0_TIMEOUT=30s  # default",
		"DESTINATION_0_AUTH_TOKEN=[redacted]  # set", "CIRCUIT_BREAKER_COOLDOWN_MS=300000  # default",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	asJSON := runIn(t, env, "", "config", "check", "-o", "json").ok(t)
	if strings.Contains(out+asJSON, "hunter2") {
		t.Errorf("shows a secret:\n%s\n%s", out, asJSON)
	}
	found := false
	for _, e := range decode[config.Document](t, asJSON).Items {
		found = found || e == config.Entry{Name: "DESTINATION_0_CONCURRENCY", Value: "7", Source: "set"}
	}
	if !found {
		t.Errorf("no entry of DESTINATION_0_CONCURRENCY in\n%s", asJSON)
	}
}

func TestConfigCheckWarns(t *testing.T) {
	t.Parallel()
	got := runIn(t, []string{"REDIS_ULR=redis://x"}, "", "config", "check")
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	if got.status != 0 || len(lines) != 2 || !strings.HasPrefix(lines[0], "tidegate: warning: REDIS_ULR: ") ||
		lines[1] != "tidegate: warning: no destination is configured, and a worker needs one; set DESTINATION_0_NAME and DESTINATION_0_URL" {
		t.Errorf("exit status %d, stderr:\n%s", got.status, got.stderr)
	}
	if !strings.HasPrefix(got.stdout, "REDIS_URL=") {
		t.Errorf("stdout:\n%s", got.stdout)
	}
}

// What only those who send alerts or run workers need to know is not said by each command.
func TestWarningsOfOthers(t *testing.T) {
	t.Parallel()
	const (
		odd  = "tidegate: warning: ALERT_FAILED_BURST: is set, but alerts have no receiver"
		long = "tidegate: warning: DESTINATION_0_TIMEOUT: 45s is longer than SHUTDOWN_TIMEOUT (30s)"
	)
	b := newBench(t, append([]string{"ALERT_FAILED_BURST=5/1m", "DESTINATION_0_TIMEOUT=45s"}, shop...)...)
	if got := b.run(t, "stats"); got.status != 0 || got.stderr != "" {
		t.Errorf("stats: exit status %d, stderr:\n%s", got.status, got.stderr)
	}
	if got := b.run(t, "config", "check"); got.status != 0 || !strings.Contains(got.stderr, odd) || !strings.Contains(got.stderr, long) {
		t.Errorf("config check: exit status %d, stderr:\n%s", got.status, got.stderr)
	}
}

// Who has not decided how failures are retried is told once, by name.
func TestDestinationsWithoutRetryAreNamed(t *testing.T) {
	t.Parallel()
	got := runIn(t, shop, "", "config", "check")
	const want = "tidegate: warning: jobs of shop without a retry policy are called once: a failure of the API fails them; set DESTINATION_<i>_RETRY, to none if that is meant\n"
	if got.status != 0 || got.stderr != want {
		t.Errorf("exit status %d, stderr:\n%s", got.status, got.stderr)
	}
	env := append([]string{"DESTINATION_0_RETRY=max=3"}, shop...)
	if got := runIn(t, env, "", "config", "check"); got.stderr != "" {
		t.Errorf("stderr:\n%s", got.stderr)
	}
	if out := runIn(t, env, "", "config", "convert").ok(t); !strings.HasPrefix(out, "destinations:\n  shop:\n") || !strings.Contains(out, "    retry: max=3\n") {
		t.Errorf("converted:\n%s", out)
	}
	if out := runIn(t, env, "", "config", "schema").ok(t); !strings.Contains(out, `"$schema"`) {
		t.Error("no schema is printed")
	}
}
