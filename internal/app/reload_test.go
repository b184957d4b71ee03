package app

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/health"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// writeDestinations replaces the file as the kubelet does: by the swap of a symbolic link.
func writeDestinations(t *testing.T, file string, n int, content string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(file), fmt.Sprint("v", n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	link := file + ".new"
	if err := os.Symlink(filepath.Join(dir, "d.yaml"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, file); err != nil {
		t.Fatal(err)
	}
}

// A change of the file is taken up within 2 s while jobs are published: none is lost or sent twice, and
// calls in flight end by the settings before. A file with a mistake changes nothing and is reported.
func TestChangesOfTheFileAreTakenUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	old, oldURL := startAPI(t, fakeapi.Options{Latency: 300 * time.Millisecond})
	moved, movedURL := startAPI(t, fakeapi.Options{})
	file := filepath.Join(t.TempDir(), "d.yaml")
	writeDestinations(t, file, 0, "destinations:\n  shop: {url: "+oldURL+", concurrency: 3}\n")
	worker := runAsked(t, "REDIS_URL="+server.URL(), "DESTINATIONS_FILE="+file)
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent), jobs.WithDestinations("shop", "blog"))
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(destination string, n int) {
		t.Helper()
		for range n {
			if _, err := client.Enqueue(t.Context(), jobs.New(destination, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	accepted := func(api *fakeapi.API, n int) {
		t.Helper()
		if err := api.Wait(t.Context(), func(s fakeapi.Stats) bool { return s.Accepted >= n }); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("shop", 100)
	accepted(old, 4)

	writeDestinations(t, file, 1, "destinations:\n  shop: {url: "+movedURL+"}\n  blog: {url: "+movedURL+"/blog}\n")
	accepted(moved, 1)
	enqueue("blog", 1)
	// Calls of before are in flight for a moment. All are accepted, each once.
	for old.Stats().InFlight > 0 {
		<-time.After(10 * time.Millisecond)
	}
	accepted(moved, 101-old.Stats().Accepted)
	keys := map[string]bool{}
	for _, r := range append(old.Receipts(), moved.Receipts()...) {
		if keys[r.Key] {
			t.Errorf("job %s was sent twice", r.Key)
		}
		keys[r.Key] = true
	}
	if len(keys) != 101 {
		t.Errorf("%d jobs were sent", len(keys))
	}

	writeDestinations(t, file, 2, "destinations:\n  shop: {url: "+movedURL+", tmeout: 1s}\n")
	valid := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			r := worker.report()
			if (r.ConfigWarning == "") == want && r.Status == health.Ready {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("valid: not %t within a minute: %+v", want, r)
			}
		}
	}
	valid(false)
	if _, body := worker.get("/metrics"); !strings.Contains(body, "tidegate_destinations_file_valid 0\n") {
		t.Error("the metric does not say that the file is wrong")
	}
	before := moved.Stats().Accepted
	enqueue("blog", 1) // by the version before
	accepted(moved, before+1)

	goroutines := runtime.NumGoroutine()
	for n := range 5 {
		writeDestinations(t, file, 3+2*n, fmt.Sprintf("destinations:\n  shop: {url: %s, timeout: %ds}\n", movedURL, 10+n))
		valid(true)
		writeDestinations(t, file, 4+2*n, "destinations:\n  shop: {}\n")
		valid(false)
	}
	writeDestinations(t, file, 13, "destinations:\n  shop: {url: "+movedURL+", timeout: 10s}\n")
	valid(true)
	if _, body := worker.get("/metrics"); !strings.Contains(body, "tidegate_destinations_file_valid 1\n") {
		t.Error("the metric does not say that the file is right")
	}
	before = moved.Stats().Accepted
	enqueue("shop", 1)
	enqueue("blog", 1) // waits: it is not served any more
	accepted(moved, before+1)
	if now := runtime.NumGoroutine(); now > goroutines+20 {
		t.Errorf("%d goroutines, %d before ten changes", now, goroutines)
	}
	if err := worker.stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if got := moved.Stats().Accepted; got != before+1 {
		t.Errorf("%d calls more than one of the removed destination", got-before-1)
	}
}
