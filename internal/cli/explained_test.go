package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// waits is what get says of why a job waits.
func (b *bench) waits(t *testing.T, id string) string {
	t.Helper()
	for line := range strings.Lines(b.run(t, "get", id).ok(t)) {
		if text, found := strings.CutPrefix(line, "waits"); found {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// A worker that has stopped serves nothing, however short a time ago that was.
func TestDoctorKnowsThatTheOnlyWorkerHasStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, serveAPI(t)...)
	stop := b.work(t)
	redistest.Eventually(t, "the worker has registered", func() bool { return !strings.Contains(b.run(t, "stats").ok(t), "never") })
	b.run(t, "doctor").want(t, 0, "checked 0 jobs: no problems found\n", "")
	stop()
	b.enqueue(t, "", "a")
	got := b.run(t, "doctor")
	want := regexp.MustCompile(`(?m)^no_worker  tidegate:shop  1      no        -        jobs wait, and no worker has served shop since [0-9TZ:-]+; start one$`)
	if got.status != 1 || !want.MatchString(got.stdout) {
		t.Errorf("exit status %d:\n%s\nwant 1 and a line like %s", got.status, got.stdout, want)
	}
	if got := b.waits(t, "a"); !regexp.MustCompile(`^no worker has served shop for [0-9]+s; start one with: tidegate worker$`).MatchString(got) {
		t.Errorf("waits %q", got)
	}
}
