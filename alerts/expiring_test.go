package alerts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Jobs that the forecast has expire within an hour are one alert of the fleet, which ends when there are less than half
// as many.
func TestJobsAboutToExpire(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2, func(o *setup) { o.Expiring = 10 })
	client, err := jobs.NewClient(b.rdb, jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	look := func(soon int) []string { // once all have the forecast, which is shared for a second
		t.Helper()
		redistest.Eventually(t, fmt.Sprint(soon, " jobs expire soon"), func() bool {
			b.clock.set(time.Now()) // a forecast goes by the real clock of Redis
			return !slices.ContainsFunc(b.workers, func(a *Alerts) bool {
				f, err := a.client.Forecast(t.Context(), "shop", "")
				return err != nil || f.ExpireSoon != soon || f.Binding != "60 calls an hour"
			})
		})
		if err := b.rdb.Del(t.Context(), b.workers[0].store.key("limit", "scan", expiring)).Err(); err != nil {
			t.Fatal(err)
		}
		b.clock.set(time.Now().Add(time.Minute)) // what is enqueued is due
		return b.lookFor()
	}
	same(t, "without a queue", []string(nil), b.lookFor())
	b.clock.set(time.Now())
	limit, err := breaker.New(t.Context(), b.rdb, breaker.Options{Destination: "shop", Rate: breaker.Rates{{Calls: 60, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	defer limit.Close()
	b.heartbeat("w", nil)
	expires := time.Now().Add(30 * time.Minute)
	enqueue := func(from, n int, expires time.Time) {
		t.Helper()
		var specs []*jobs.Spec
		for i := range n {
			specs = append(specs, jobs.New("shop", "x", jobs.ID(fmt.Sprintf("job-%02d", from+i)), jobs.ExpiresAt(expires)))
		}
		if _, err := client.EnqueueMany(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(0, 30, expires.Add(time.Hour)) // 60 an hour: none of them is late
	enqueue(30, 6, expires)
	same(t, "below the bound", []string(nil), look(6))
	enqueue(36, 6, expires)
	want := []string{"shop: 12 jobs will expire unpublished within the hour; they wait for: 60 calls an hour"}
	same(t, "at the bound", want, look(12))
	same(t, "still", want, look(12))
	if text := string(b.slack.Messages()[0].Blocks); !strings.Contains(text, "job-30") || !strings.Contains(text, "would start at") || strings.Contains(text, "job-35") {
		t.Errorf("the message is %s", text)
	}
	for i := range 25 {
		if err := client.Cancel(t.Context(), fmt.Sprintf("job-%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "too soon", want, look(0))
	if err := b.rdb.Set(t.Context(), b.workers[0].store.key(expiring, "shop"), time.Now().Add(-15*time.Minute).Unix(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := look(0)
	if len(got) != 2 || !strings.HasPrefix(got[1], "shop: jobs about to expire are down to 0 after 1") {
		t.Errorf("the alerts are %q", got)
	}
}
