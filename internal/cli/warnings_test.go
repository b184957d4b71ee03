package cli

import (
	"strings"
	"testing"
)

// What only workers need is not warned of where nothing is published.
func TestCredentialsKeyWarning(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com", "DESTINATION_0_OAUTH_TOKEN_URL=https://api.example.com/token",
		"DESTINATION_0_OAUTH_CLIENT_ID=a", "DESTINATION_0_OAUTH_CLIENT_SECRET=b")
	for _, command := range []string{"stats", "limits -d shop", "breaker list -d shop"} {
		b.run(t, strings.Fields(command)...).ok(t)
	}
	if out := b.run(t, "config", "check"); !strings.Contains(out.stderr, "CREDENTIALS_KEY: is not set") {
		t.Errorf("config check: %+v", out)
	}
}

// A command's own Redis would end with it, and the job with that.
func TestEmbeddedRedisOfACommand(t *testing.T) {
	t.Parallel()
	const refusal = "tidegate: REDIS_URL is the embedded Redis, which would end with this command: run tidegate dev, and export REDIS_URL=$(cat .tidegate/redis-url)\n"
	for _, command := range []string{"enqueue -d shop --payload {}", "list"} {
		out := runIn(t, append([]string{"REDIS_URL=embedded:"}, shop...), "", strings.Fields(command)...)
		if out.status != 2 || out.stdout != "" || !strings.HasSuffix(out.stderr, refusal) {
			t.Errorf("%s: %+v", command, out)
		}
	}
}
