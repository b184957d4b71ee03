package app

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A limit that an operator sets holds for running workers and for one that starts, without a destinations file, for
// costs above it and with the breaker off; then the configured one holds again.
func TestOperatorsLimits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	api, url := startAPI(t, fakeapi.Options{})
	environ := []string{"REDIS_URL=" + server.URL(), "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=" + url, "CIRCUIT_BREAKER_ENABLED=false"}
	set := func(rate string) {
		t.Helper()
		if _, err := store.DefaultNamespace.SetOverride(t.Context(), rdb, "shop", store.Override{Rate: rate, By: "ann"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	client, err := jobs.NewClient(rdb, jobs.WithLogger(silent), jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(id string, options ...jobs.Option) {
		t.Helper()
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", 1, append(options, jobs.ID(id))...)); err != nil {
			t.Fatal(err)
		}
	}
	accepted := func(n int) {
		t.Helper()
		if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted >= n }); err != nil {
			t.Fatal(err)
		}
	}
	set("1/1h")
	worker := runAsked(t, environ...) // one that starts
	enqueue("first", jobs.Cost(40))
	accepted(1)
	enqueue("second")
	redistest.Eventually(t, "the second waits", func() bool {
		j, err := client.Get(t.Context(), "second")
		return err == nil && j.Status == jobs.Pending && j.LastError == ""
	})
	<-time.After(300 * time.Millisecond)
	if n := api.Stats().Accepted; n != 1 {
		t.Errorf("%d calls under 1/1h", n)
	}
	if _, err := store.DefaultNamespace.UnsetOverride(t.Context(), rdb, "shop"); err != nil {
		t.Fatal(err)
	}
	accepted(2)
	if err := worker.stop(); err != nil {
		t.Error(err)
	}
}
