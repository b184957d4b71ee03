package publisher_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestHTTPUnauthorized(t *testing.T) {
	t.Parallel()
	own := http.Header{"Authorization": {"Basic dXNlcg=="}}
	for _, row := range []struct {
		name string
		o    publisher.HTTPOptions
		job  *jobs.Job
		want jobs.Scope // "none": not unauthorized
	}{
		{"the key's token", publisher.HTTPOptions{Tokens: perKey}, keyed("alice"), jobs.ScopeUser},
		{"the destination's token", publisher.HTTPOptions{AuthToken: "t0ken"}, keyed("alice"), jobs.ScopeGlobal},
		{"the destination's header", publisher.HTTPOptions{Header: own}, keyed(""), jobs.ScopeGlobal},
		{"no credentials", publisher.HTTPOptions{}, keyed("alice"), "none"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
			row.o.URL = a.URL
			err := newHTTP(t, row.o).Publish(t.Context(), row.job)
			got := jobs.Scope("none")
			if denied, ok := errors.AsType[*jobs.UnauthorizedError](err); ok {
				got = denied.Scope
			}
			if got != row.want || !strings.Contains(err.Error(), "answered 401 Unauthorized") {
				t.Errorf("%v: scope %q, want %q", err, got, row.want)
			}
		})
	}
}

// A bound that the job sets holds for refused credentials, too, and without a circuit breaker
// nothing would hold the next call back.
func TestRefusedTokenFailsTheJob(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		rules breaker.Options
		want  string
	}{
		"at its max_reschedules":  {breaker.Options{Cooldown: time.Millisecond}, "max reschedules (2) exceeded"},
		"with a disabled breaker": {breaker.Options{Disabled: true}, "answered 401"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			b.run(b.options(), func(context.Context, *jobs.Job) error {
				return jobs.Unauthorized(errors.New("answered 401"))
			}, publisher.Breaker(row.rules))
			job := b.waitStatus(b.enqueue(jobs.MaxReschedules(2)).ID, jobs.Failed)
			if job.LastError != row.want {
				t.Errorf("failed with %q, want %q", job.LastError, row.want)
			}
		})
	}
}
