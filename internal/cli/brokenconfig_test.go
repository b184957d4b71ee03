package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Commands that need Redis alone work beside a broken configuration of destinations, and warn of it.
func TestABrokenDestinationsFileStopsNoLook(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "destinations.yaml")
	if err := os.WriteFile(file, []byte("destinations:\n  shop:\n    urk: http://127.0.0.1:1/\n    rate: much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{"DESTINATIONS_FILE=" + file, "DESTINATIONS_FILE=/not/there", "DESTINATION_0_URL=::", "CIRCUIT_BREAKER_ENABLED=perhaps", "JOB_RETENTION=long"} {
		b := newBench(t, broken)
		b.env = append(b.env, "REDIS_NAMESPACE=elsewhere")
		for _, args := range [][]string{
			{"stats"},
			{"doctor"},
			{"list"},
			{"limits", "set", "shop", "--rate", "10/1s"},
			{"queue", "pause", "shop"},
			{"queue", "resume", "shop"},
			{"breaker", "list"},
			{"limits"},
			{"audit"},
		} {
			got := b.run(t, args...)
			// A destination that is not known is not found: that is Redis's word.
			if got.status == 78 || !strings.Contains(got.stderr, "goes on without the destinations' configuration") {
				t.Errorf("%s, %q: %d\n%s", broken, args, got.status, got.stderr)
			}
		}
		if got := b.run(t, "enqueue", "--destination", "shop"); got.status != 78 {
			t.Errorf("%s: an enqueue, which needs the configuration: %d %s", broken, got.status, got.stderr)
		}
		b.env = append(b.env, "REDIS_URL=nonsense")
		if got := b.run(t, "stats"); got.status != 78 {
			t.Errorf("%s: a wrong REDIS_URL: %d %s", broken, got.status, got.stderr)
		}
	}
}
