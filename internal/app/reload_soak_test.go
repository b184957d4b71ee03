//go:build soak

package app

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// TestSoakChanges changes a file of 1,000 destinations 100 times under load: each change adds one, removes
// one, moves the URL of one and sets the rate of one; each tenth is wrong first. No job is lost or sent
// twice, none is sent by settings older than two seconds, and nothing leaks.
func TestSoakChanges(t *testing.T) {
	const destinations, changes = 1000, 100
	const settled = 40 // changes, after which generations that were replaced SHUTDOWN_TIMEOUT ago are gone
	server := redistest.Start(t)
	api, url := startAPI(t, fakeapi.Options{Latency: 50 * time.Millisecond})
	file := filepath.Join(t.TempDir(), "d.yaml")
	content := func(version int) string {
		var b strings.Builder
		b.WriteString("defaults: {concurrency: 2, retry: max=3}\ndestinations:\n")
		for i := version; i < destinations+version; i++ {
			fmt.Fprintf(&b, "  d%d: {url: '%s/v%d'", i, url, map[bool]int{true: version}[i == destinations-1])
			if i == version+5 {
				fmt.Fprintf(&b, ", rate: %d/1s", 100+version)
			}
			b.WriteString("}\n")
		}
		return b.String()
	}
	writeDestinations(t, file, 0, content(0))
	worker := runAsked(t, "REDIS_URL="+server.URL(), "DESTINATIONS_FILE="+file, "JOB_RETENTION=1s", "JOB_RETENTION_FAILED=1s")
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb, jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, ok func() bool) time.Duration {
		t.Helper()
		begin := time.Now()
		for !ok() {
			if time.Since(begin) > time.Minute {
				t.Fatal(what, " not within a minute")
			}
			<-time.After(10 * time.Millisecond)
		}
		return time.Since(begin)
	}
	until("ready", func() bool { return worker.report().Status == health.Ready })
	moving := fmt.Sprint("d", destinations-1)
	sent, slowest, n := 0, time.Duration(0), 1
	var goroutines int
	system := ops.New(ops.Options{Redis: rdb, Client: client})
	countKeys := func() int {
		until("the end of removed destinations", func() bool {
			err := system.ForgetRemoved(t.Context(), time.Second)
			names, readErr := system.Names(t.Context())
			if err := errors.Join(err, readErr); err != nil {
				t.Fatal(err)
			}
			return len(names) == destinations
		})
		names, err := system.Names(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		known, left := map[string]bool{}, 0
		for _, name := range names {
			known[name] = true
		}
		for key := range strings.Lines(strings.Join(rdb.Keys(t.Context(), "*{*d*}*").Val(), "\n")) {
			_, of, _ := strings.Cut(key, "{")
			of, _, _ = strings.Cut(strings.TrimPrefix(of, "tidegate:"), "}")
			of, _, _ = strings.Cut(of, ":")
			if key = strings.TrimSpace(key); !known[of] && !strings.HasPrefix(of, "tidegate") && rdb.TTL(t.Context(), key).Val() == -1 {
				left++
				t.Logf("%s is left of a destination that was removed", key)
			}
		}
		return left
	}
	var memory runtime.MemStats
	var heap uint64
	for version := 1; version <= changes; version++ {
		if version%10 == 0 {
			writeDestinations(t, file, n, "destinations: [")
			n++
			until("the warning", func() bool { return worker.report().ConfigWarning != "" })
		}
		written := time.Now()
		writeDestinations(t, file, n, content(version))
		n++
		for range 3 { // to destinations of both versions
			for _, d := range []int{version + 1, version + 500, destinations - 1} {
				if _, err := client.Enqueue(t.Context(), jobs.New(fmt.Sprint("d", d), version, jobs.ID(fmt.Sprintf("j%d", sent)))); err != nil {
					t.Fatal(err)
				}
				sent++
			}
		}
		path := fmt.Sprint("/v", version)
		until("a call by the new settings", func() bool {
			id := fmt.Sprintf("j%d", sent)
			if _, err := client.Enqueue(t.Context(), jobs.New(moving, version, jobs.ID(id))); err != nil {
				t.Fatal(err)
			}
			sent++
			if err := api.Wait(t.Context(), func(fakeapi.Stats) bool {
				_, ok := receipt(api, id)
				return ok
			}); err != nil {
				t.Fatal(err)
			}
			r, _ := receipt(api, id)
			return r.Path == path
		})
		slowest = max(slowest, time.Since(written))
		if version == settled || version == changes {
			runtime.GC()
			runtime.ReadMemStats(&memory)
			inRedis := countKeys()
			t.Logf("after %d changes: %d goroutines, %d MiB, %d keys of removed destinations in Redis", version, runtime.NumGoroutine(), memory.HeapAlloc>>20, inRedis)
			if inRedis > 0 {
				t.Errorf("%d keys without an end are left of removed destinations", inRedis)
			}
		}
		if version == settled {
			goroutines, heap = runtime.NumGoroutine(), memory.HeapAlloc
		}
	}
	if now := runtime.NumGoroutine(); now > goroutines+goroutines/10 {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	if memory.HeapAlloc > heap+heap/4 {
		t.Errorf("%d bytes of heap, %d before", memory.HeapAlloc, heap)
	}
	keys := map[string]int{}
	for _, r := range api.Receipts() {
		if r.Status < 300 {
			keys[r.Key]++
		}
	}
	for i := range sent {
		if keys[fmt.Sprintf("j%d", i)] != 1 {
			t.Errorf("job j%d was sent %d times", i, keys[fmt.Sprintf("j%d", i)])
		}
	}
	t.Logf("%d jobs, the slowest change was in effect after %s", sent, slowest.Round(time.Millisecond))
	if slowest > 3*time.Second { // and a call
		t.Errorf("a change took %s", slowest)
	}
}

func receipt(api *fakeapi.API, key string) (fakeapi.Receipt, bool) {
	for _, r := range slices.Backward(api.Receipts()) {
		if r.Key == key {
			return r, true
		}
	}
	return fakeapi.Receipt{}, false
}
