package publisher_test

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A worker whose API limits one path alone says so, and what to set.
func TestLimitedRoute(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a, free := limitedPath(t, "/v1/images", "Retry-After-Ms", "50")
	h := newHTTP(t, publisher.HTTPOptions{URL: a.URL})
	rules := publisher.Breaker(breaker.Options{Cooldown: 50 * time.Millisecond, CooldownJitter: -1})
	stop := b.run(b.options(), h.Publish, rules)
	var found jobs.Route
	redistest.Eventually(t, "the worker has found the route", func() bool {
		b.enqueueMany(1, jobs.Path("/v1/images"))
		b.enqueueMany(4, jobs.Path("/v1/chat"))
		workers, err := b.client.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ok bool
		found, ok = workers.LimitedRoute(b.dest)
		return ok
	})
	if found.Route != "/v1/images" || found.KeyBy != "request.path" || found.Refused < 3 || found.Accepted < 10 || found.At.IsZero() {
		t.Errorf("found %+v", found)
	}
	free.Store(true)
	stop()
}
