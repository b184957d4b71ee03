package publisher_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/jobs"
)

// Jobs that fail are in the worker's log, with why, and not more of them than can be read.
func TestFailedJobsAreLogged(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	log := &loggingtest.Buffer{}
	o := b.options()
	o.Observers, o.Logger = nil, slog.New(slog.NewTextHandler(log, nil))
	ids := b.enqueueMany(60)
	stop := b.run(o, func(context.Context, *jobs.Job) error { return jobs.Discard(errors.New("answered 403 Forbidden")) })
	for _, id := range ids {
		b.waitStatus(id, jobs.Failed)
	}
	stop()
	lines := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `msg="job failed"`) {
			lines++
			if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "destination="+b.dest+" job=") || !strings.Contains(line, `error="answered 403 Forbidden"`) {
				t.Errorf("a line %s", line)
			}
		}
	}
	if counted := strings.Contains(log.String(), `level=WARN msg="more jobs failed within a minute" destination=`+b.dest+` jobs=50`); lines != 10 || !counted {
		t.Errorf("%d lines of 60 failed jobs, the others counted: %t; want 10, and a count\n%s", lines, counted, log)
	}
}
