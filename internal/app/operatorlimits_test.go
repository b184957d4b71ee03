package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/ops"
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

// Of a limit that destinations share it is taken up, too.
func TestOperatorsNamedLimits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	api, url := startAPI(t, fakeapi.Options{})
	file := filepath.Join(t.TempDir(), "d.yaml")
	text := "limits: {all: {rate: 1/1h}}\ndestinations: {shop: {url: " + url + ", limits: [all]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	worker := runAsked(t, "REDIS_URL="+server.URL(), "DESTINATIONS_FILE="+file)
	client, err := jobs.NewClient(rdb, jobs.WithLogger(silent), jobs.WithDestinations("shop"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := func(n int) {
		t.Helper()
		if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted >= n }); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", 1)); err != nil {
			t.Fatal(err)
		}
	}
	accepted(1)
	system := ops.New(ops.Options{Redis: rdb, Client: client, Log: silent})
	set, err := system.SetLimit(t.Context(), "all", "off", time.Hour, nil, ops.Why{By: "ann"})
	if err != nil || set.Name != "all" || set.Override.Rate != "off" || len(set.Named) != 1 {
		t.Fatalf("set %+v, %v", set, err)
	}
	accepted(3)
	if _, found, err := system.UnsetLimit(t.Context(), "all", ops.Why{By: "ann"}); err != nil || !found { // no destination has it now
		t.Error(found, err)
	}
	if err := worker.stop(); err != nil {
		t.Error(err)
	}
}
