package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
)

// A worker does not start with answer rules that cannot be compiled, and names each mistake.
func TestWorkerRefusesBadAnswerRules(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
	rules := filepath.Join(t.TempDir(), "answers.yaml")
	if err := os.WriteFile(rules, []byte("- when: status == 403\n  then: limited\n- when: status == 200 && bdy.ok\n  then: okay\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.env["DESTINATION_0_ANSWERS_FILE"] = rules
	_, stderr, code := f.tidegate("worker")
	for _, want := range []string{
		"DESTINATION_0_ANSWERS_FILE", rules, "line 3: rule 2, when: column 18: unknown name bdy", `line 3: rule 2, then: "okay" is not an outcome`,
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr without %q", want)
		}
	}
	if code != 78 || t.Failed() {
		t.Errorf("exit code %d, stderr:\n%s", code, stderr)
	}
}
