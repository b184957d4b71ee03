package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/base/redisconn/embedded"
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

// What tidegate api refuses, config check refuses, in the same words.
func TestConfigCheckIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"none": "", "a list": "[]", "a word": "hello", "a name": `{"tokens":[{"name":"a b","scopes":["read"],"hash":"sha256:` + strings.Repeat("0", 64) + `"}]}`,
		"a scope": `{"tokens":[{"name":"a","scopes":["all"],"hash":"sha256:` + strings.Repeat("0", 64) + `"}]}`, "no hash": `{"tokens":[{"name":"a","scopes":["read"]}]}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		env := append([]string{"REDIS_URL=redis://127.0.0.1:1", "LISTEN_ADDR=127.0.0.1:0", "DESTINATION_0_RETRY=none", "API_TOKENS_FILE=" + path}, shop...)
		api, check := runIn(t, env, "", "api"), runIn(t, env, "", "config", "check")
		if api.status != exitConfig || !strings.Contains(api.stderr, "API_TOKENS_FILE: file") {
			t.Errorf("%s: api: %+v", name, api)
		}
		check.want(t, api.status, "", api.stderr)
	}
	for _, env := range [][]string{{"LISTEN_ADDR=0.0.0.0:0"}, {"LISTEN_ADDR=nonsense"}, {"API_TOKENS_FILE=/dev/zero"}, {"API_TOKENS_FILE=/none"}} {
		env = append(env, append([]string{"REDIS_URL=redis://127.0.0.1:1", "DESTINATION_0_RETRY=none"}, shop...)...)
		api, check := runIn(t, env, "", "api"), runIn(t, env, "", "config", "check")
		if api.status != exitConfig {
			t.Errorf("%v: api: %+v", env, api)
		}
		check.want(t, api.status, "", api.stderr)
	}
}

// A device may never end, nor may a link to one: it is refused, wherever a file is named.
func TestDevices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	endless := filepath.Join(dir, "endless")
	if err := errors.Join(os.Symlink("/dev/zero", endless), os.Symlink("/dev/zero", filepath.Join(dir, "redis-url"))); err != nil {
		t.Fatal(err)
	}
	env := append([]string{"REDIS_URL=redis://127.0.0.1:1", "DESTINATION_0_RETRY=none"}, shop...)
	for _, args := range []string{
		"enqueue --file endless", "enqueue -d shop --payload @endless", "answers test --destination shop --status 200 --body @endless", "simulate --api window:60/1h --jobs 1 --config endless",
		"token new --name a --scope read --file endless",
	} {
		if got := runIn(t, env, "", strings.Fields(strings.Replace(args, "endless", endless, 1))...); got.status == exitOK || !strings.Contains(got.stderr, "is a device") {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, name := range []string{"DESTINATIONS_FILE", "API_TOKENS_FILE", "DESTINATION_0_AUTH_TOKENS_FILE", "DESTINATION_0_ANSWERS_FILE", "REDIS_URL_FILE"} {
		if got := runIn(t, append([]string{name + "=" + endless}, shop...), "", "config", "check"); got.status != exitConfig || !strings.Contains(got.stderr, "is a device") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := embedded.URLIn(dir); got != "" {
		t.Errorf("the URL of a device is %q", got)
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
		odd  = "tidegate: warning: ALERT_ONCALL_MENTION: is set, but alerts have no receiver"
		long = "tidegate: warning: DESTINATION_0_TIMEOUT: 45s is longer than SHUTDOWN_TIMEOUT (30s)"
	)
	b := newBench(t, append([]string{"ALERT_ONCALL_MENTION=@oncall", "DESTINATION_0_TIMEOUT=45s"}, shop...)...)
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
