package tracing_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Who uses Tidegate as a library links no OpenTelemetry, unless by this package.
func TestOnlyThisPackageLinksOpenTelemetry(t *testing.T) {
	t.Parallel()
	const module = "github.com/tidegate/tidegate/"
	out, err := exec.Command("go", "list", "-deps",
		module+"jobs", module+"publisher", module+"publisher/publishertest", module+"publisher/metrics", module+"breaker", module+"alerts").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), module+"jobs\n") {
		t.Fatalf("go list printed %q", out)
	}
	for pkg := range strings.Lines(string(out)) {
		if strings.HasPrefix(pkg, "go.opentelemetry.io/") {
			t.Errorf("linked: %s", pkg)
		}
	}
}
