package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/serve/health"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
	if err := worker.stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if got := moved.Stats().Accepted; got != before+1 {
		t.Errorf("%d calls more than one of the removed destination", got-before-1)
	}
}

// A worker says which version of the file it publishes by, and why it cannot take up another, without
// secrets, until the file is good again.
func TestWorkersSayWhatTheFileIs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, url := startAPI(t, fakeapi.Options{})
	const secret = "sk-live-0123456789abcdef"
	good := "destinations:\n  shop: {url: " + url + "}\n"
	var files []string
	for range 2 {
		file := filepath.Join(t.TempDir(), "d.yaml")
		writeDestinations(t, file, 0, good)
		files = append(files, file)
		runAsked(t, "REDIS_URL="+server.URL(), "DESTINATIONS_FILE="+file)
	}
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, wanted func(all jobs.Workers, problems string) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			all, err := client.Workers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found, err := client.Disagreements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, d := range found {
				problems = append(problems, d.Problem)
			}
			text := strings.Join(problems, "\n")
			if strings.Contains(text, secret) {
				t.Fatalf("a secret: %s", text)
			}
			if wanted(all, text) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not %s within a minute: %+v, %s", what, all, text)
			}
		}
	}
	agree := func(all jobs.Workers, problems string) bool {
		return len(all) == 2 && problems == "" && all[0].ConfigVersion != "" && all[0].ConfigVersion == all[1].ConfigVersion
	}
	await("one version", agree)
	writeDestinations(t, files[0], 1, good+"# a comment\n")
	await("two versions", func(_ jobs.Workers, problems string) bool {
		return strings.HasPrefix(problems, "workers hold different versions of the destinations file: ")
	})
	writeDestinations(t, files[1], 1, good+"# a comment\n")
	await("one version again", agree)
	writeDestinations(t, files[1], 2, "destinations:\n  shop: {url: "+url+", auth_token: "+secret+", headers: {X-Key: "+secret+"}, tmeout: 1s, "+strings.Repeat("x", 500)+": 1}\n")
	await("a problem", func(all jobs.Workers, problems string) bool {
		named := ""
		for _, w := range all {
			named += w.ConfigProblem
		}
		if named != "" && strings.Contains(problems, " cannot take up the destinations file: "+named) && len(named) <= maxConfigProblem {
			t.Log(problems)
			return true
		}
		return false
	})
	writeDestinations(t, files[1], 3, good+"# a comment\n")
	await("good again", agree)
}

// The API takes a change of the file up: it knows new destinations and checks jobs by it.
func TestAPITakesUpChangesOfTheFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "d.yaml")
	writeDestinations(t, file, 0, "destinations:\n  shop: {url: https://shop.example.com}\n")
	environ := []string{"REDIS_URL=" + server.URL(), "LISTEN_ADDR=127.0.0.1:0", "DESTINATIONS_FILE=" + file}
	api := runTheAPI(t, environ...)
	await := api.await
	await(http.StatusUnprocessableEntity, "/v1/jobs", `{"destination":"blog","payload":{}}`, "known are shop")
	writeDestinations(t, file, 1, "destinations:\n  blog: {url: 'https://{key}.example.com', key_pattern: '[a-z]+'}\n")
	await(http.StatusCreated, "/v1/jobs", `{"destination":"blog","key":"a","payload":{}}`, `"id"`)
	await(http.StatusUnprocessableEntity, "/v1/jobs", `{"destination":"blog","payload":{}}`, "holds {key}")
	writeDestinations(t, file, 2, "destinations: [\n")
	await(http.StatusOK, "/readyz", "", `"config_warning":"the destinations file cannot be taken up`)
	writeDestinations(t, file, 3, "destinations:\n  blog: {url: 'https://blog.example.com'}\n")
	await(http.StatusCreated, "/v1/jobs", `{"destination":"blog","payload":{}}`, `"id"`)
}

// What works for the settings before ends with them, and nothing else: callbacks of a destination that
// a change has added come after that.
func TestCallbacksGoOnAfterAChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, url := startAPI(t, fakeapi.Options{})
	called := make(chan struct{}, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "d.yaml")
	writeDestinations(t, file, 0, "destinations:\n  shop: {url: "+url+"}\n")
	worker := runAsked(t, "REDIS_URL="+server.URL(), "DESTINATIONS_FILE="+file, "SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent), jobs.WithDestinations("blog"))
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "a worker", func() bool { return worker.report().Status == health.Ready })
	writeDestinations(t, file, 1, "destinations:\n  blog: {url: "+url+", callback_url: "+receiver.URL+", callback_secret_env: SECRET}\n")
	redistest.Eventually(t, "the end of the settings before", func() bool {
		workers, err := client.Workers(t.Context())
		return err == nil && len(workers) == 1 && slices.Contains(workers[0].Destinations, "blog")
	})
	for range 3 {
		<-time.After(300 * time.Millisecond) // what ends has ended
		if _, err := client.Enqueue(t.Context(), jobs.New("blog", 1)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-called:
		case <-time.After(20 * time.Second):
			t.Fatal("no callback within 20 s")
		}
	}
	if err := worker.stop(); err != nil {
		t.Error(err)
	}
}

// The worker takes up a file once its problem is mended elsewhere, such as by a Secret that was mounted
// later, or once a temporary failure is over. It logs the problem once.
func TestAWrongFileIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "d.yaml"), filepath.Join(dir, "token")
	writeDestinations(t, file, 0, "destinations:\n  shop: {url: https://shop.example.com}\n")
	environ := []string{"DESTINATIONS_FILE=" + file}
	cfg := load(t, environ...)
	var logged atomic.Int32
	log := slog.New(slog.NewJSONHandler(writerFunc(func(line []byte) (int, error) {
		if strings.Contains(string(line), "cannot be taken up") {
			logged.Add(1)
		}
		return len(line), nil
	}), nil))
	var stop teardown
	followed := newDestinationsFile(cfg, prometheus.NewRegistry(), log)
	changes := followFile(t.Context(), cfg, config.Load, environ, followed, &stop)
	t.Cleanup(func() { _ = stop.run() })
	next := func() *config.Config {
		t.Helper()
		select {
		case cfg := <-changes:
			return cfg
		case <-time.After(30 * time.Second):
			t.Fatal("no configuration within 30 s")
			return nil
		}
	}
	writeDestinations(t, file, 1, "destinations:\n  shop: {url: https://shop.example.com, token_file: "+secret+"}\n")
	redistest.Eventually(t, "a problem", func() bool { return followed.warning() != "" })
	<-time.After(2 * fileEvery)
	if err := os.WriteFile(secret, []byte("x-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := next().Destinations[0].AuthToken.Reveal(); got != "x-secret" {
		t.Errorf("the token is %q", got)
	}
	<-time.After(2 * fileEvery)
	followed.taken(errors.New("not now"))
	next()
	followed.taken(nil)
	if followed.warning() != "" || logged.Load() != 2 {
		t.Errorf("%q, logged %d times", followed.warning(), logged.Load())
	}
}
