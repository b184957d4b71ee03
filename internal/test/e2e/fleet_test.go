// Package e2e runs the real binary: several worker processes, one redis-server,
// one API over HTTP.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// binary is the tidegate command, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// tests is a testing.M for redistest.Main.
type tests func() int

func (t tests) Run() int { return t() }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidegate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "tidegate")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/tidegate/tidegate/cmd/tidegate").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build tidegate: %v\n%s", err, out)
		return 1
	}
	if signal.Ignored(syscall.SIGHUP) { // by nohup; workers would inherit that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// The tests wait more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { watchDelays(ctx) })
	return redistest.Main(tests(func() int {
		defer watching.Wait()
		defer cancel()
		return m.Run()
	}))
}

// redisStore is the Redis of a fleet: one server, a Cluster, or one behind Sentinels.
type redisStore interface {
	URL() string
	Client(testing.TB) redis.UniversalClient
}

// fleet is one destination with its API, its Redis and its workers.
type fleet struct {
	t      *testing.T
	dest   string
	server *redistest.Server // nil if the store is no single server
	rdb    redis.UniversalClient
	api    *fakeapi.API
	url    string
	client *jobs.Client
	env    map[string]string
}

func newFleet(t *testing.T, rs redisStore, o fakeapi.Options) *fleet {
	t.Helper()
	api := fakeapi.New(o)
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	f := &fleet{t: t, dest: redistest.Name(t, "api"), rdb: rs.Client(t), api: api, url: url}
	f.server, _ = rs.(*redistest.Server)
	f.client, err = jobs.NewClient(f.rdb, jobs.WithDestinations(f.dest), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	f.env = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"),
		"REDIS_URL":                   rs.URL(),
		"DESTINATION_0_NAME":          f.dest,
		"DESTINATION_0_URL":           url,
		"DESTINATION_0_CONCURRENCY":   "10",
		"DESTINATION_0_TIMEOUT":       "5s",
		"DESTINATION_0_AUTH_TOKEN":    "canary-token",
		"CIRCUIT_BREAKER_COOLDOWN_MS": "700",
		"LOG_FORMAT":                  "json",
		"SHUTDOWN_TIMEOUT":            "5s",
		"OPS_ADDR":                    "127.0.0.1:0",
	}
	return f
}

func (f *fleet) environ() []string {
	var out []string
	for k, v := range f.env {
		out = append(out, k+"="+v)
	}
	return out
}

// worker is one `tidegate worker` process, or one of another kind.
type worker struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *loggingtest.Buffer
	done chan error
}

// lines returns what was logged, for people to count.
func (w *worker) lines() []string {
	text := strings.TrimSpace(w.log.String())
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// start runs a worker and returns once it serves its destination.
func (f *fleet) start() *worker {
	f.t.Helper()
	w := f.begin()
	redistest.Await(f.t, 2*time.Minute, "worker serves "+f.dest, func() bool {
		return strings.Contains(w.log.String(), `"publishing"`)
	})
	return w
}

// begin starts a worker and does not wait for it.
func (f *fleet) begin() *worker {
	f.t.Helper()
	return f.launch("worker")
}

// launch starts a process that runs until it is told to stop.
func (f *fleet) launch(command string) *worker {
	f.t.Helper()
	return f.run(exec.Command(binary, command))
}

// run starts a command in the fleet's environment.
func (f *fleet) run(cmd *exec.Cmd) *worker {
	f.t.Helper()
	w := &worker{t: f.t, cmd: cmd, log: &loggingtest.Buffer{}, done: make(chan error, 1)}
	w.cmd.Env = f.environ()
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	dieWithUs(w.cmd)
	if err := w.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { w.done <- w.cmd.Wait() }()
	f.t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.done
		if f.t.Failed() {
			f.t.Logf("%s %d:\n%s", cmd.Args, w.cmd.Process.Pid, w.log)
		}
		if strings.Contains(w.log.String(), "canary-token") {
			f.t.Error("the token stands in a worker's log")
		}
	})
	return w
}

// stopsWithin is how long a worker may take to stop; longer than its SHUTDOWN_TIMEOUT and 8 s.
const stopsWithin = time.Minute

// stop sends a signal and returns the exit code and how long it took. A worker that does not
// stop logs its goroutines.
func (w *worker) stop(sig syscall.Signal) (code int, took time.Duration) {
	w.t.Helper()
	started := time.Now()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Fatal(err)
	}
	select {
	case err := <-w.done:
		w.done <- err
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), time.Since(started)
		}
		return 0, time.Since(started)
	case <-time.After(stopsWithin):
	}
	_ = w.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case err := <-w.done:
		w.done <- err
	case <-time.After(stopsWithin):
	}
	w.t.Fatalf("the worker did not stop within %s of %s; its goroutines are in its log", stopsWithin, sig)
	return 0, 0
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// enqueue makes n jobs and returns their ids.
func (f *fleet) enqueue(n int, opts ...jobs.Option) []string {
	f.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(f.dest, map[string]int{"n": i}, opts...)
	}
	results, err := f.client.EnqueueMany(context.Background(), specs)
	if err != nil {
		f.t.Fatal(err)
	}
	ids := make([]string, n)
	for i, r := range results {
		if r.Err != nil {
			f.t.Fatal(r.Err)
		}
		ids[i] = r.Job.ID
	}
	return ids
}

// leastPatience is the least that a machine is given that may be busy.
const leastPatience = 2 * time.Minute

// waitAccepted waits until the API has accepted n calls.
func (f *fleet) waitAccepted(n int, within time.Duration) {
	f.t.Helper()
	within = max(within, leastPatience)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := f.api.Wait(ctx, func(s fakeapi.Stats) bool { return s.Accepted >= n }); err != nil {
		f.t.Fatalf("%d of %d accepted within %s: %v; %s", f.api.Stats().Accepted, n, within, err, f.census())
	}
}

// waitCompleted waits until every job says so itself.
func (f *fleet) waitCompleted(ids []string, within time.Duration) {
	f.t.Helper()
	left := ids
	redistest.Await(f.t, max(within, leastPatience), "all completed", func() bool {
		for len(left) > 0 {
			j, err := f.client.Get(context.Background(), left[0])
			if err != nil || j.Status != jobs.Completed {
				return false
			}
			left = left[1:]
		}
		return true
	})
}

// exactlyOnce checks that each job was accepted once and nothing else was.
func (f *fleet) exactlyOnce(ids []string) {
	f.t.Helper()
	accepted := f.api.Accepted()
	for _, id := range ids {
		if n := accepted[id]; n != 1 {
			f.t.Errorf("job %s was accepted %d times", id, n)
		}
		delete(accepted, id)
	}
	if len(accepted) > 0 {
		f.t.Errorf("accepted but never enqueued: %v", accepted)
	}
}

// census counts jobs by status, for messages.
func (f *fleet) census() string {
	counts := map[jobs.Status]int{}
	cursor := ""
	for {
		p, err := f.client.List(context.Background(), jobs.ListOptions{Filter: jobs.Filter{Destination: f.dest}, Limit: 1000, Cursor: cursor})
		if err != nil {
			return err.Error()
		}
		for _, j := range p.Items {
			counts[j.Status]++
		}
		if cursor = p.Next; cursor == "" {
			b, _ := json.Marshal(counts)
			return string(b)
		}
	}
}

// history returns the breaker's transitions, the oldest first.
func (f *fleet) history() []breaker.Event {
	f.t.Helper()
	read, err := breaker.DefaultNamespace.ReadOne(context.Background(), f.rdb, breaker.Query{History: breaker.All}, f.dest)
	if err != nil {
		f.t.Fatal(err)
	}
	return read.History
}

func (f *fleet) state() breaker.State {
	f.t.Helper()
	s, err := breaker.DefaultNamespace.Get(context.Background(), f.rdb, f.dest)
	if err != nil {
		f.t.Fatal(err)
	}
	return s.State
}

// tidegate runs the command and returns its output and exit code.
func (f *fleet) tidegate(args ...string) (stdout, stderr string, code int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = f.environ()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		f.t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// enqueueSpecs enqueues jobs in their order and returns their ids.
func (f *fleet) enqueueSpecs(specs []*jobs.Spec) []string {
	f.t.Helper()
	var ids []string
	for some := range slices.Chunk(specs, 10_000) {
		results, err := f.client.EnqueueMany(context.Background(), some)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				f.t.Fatal(r.Err)
			}
			ids = append(ids, r.Job.ID)
		}
	}
	return ids
}

func (f *fleet) job(id string) *jobs.Job {
	f.t.Helper()
	j, err := f.client.Get(context.Background(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return j
}

// trip opens the destination's breaker, or that of a key.
func (f *fleet) trip(length time.Duration, key ...string) {
	f.t.Helper()
	name := f.dest
	for _, k := range key {
		name += "/" + k
	}
	if _, err := breaker.DefaultNamespace.Trip(context.Background(), f.rdb, name, breaker.TripOptions{For: length}); err != nil {
		f.t.Fatal(err)
	}
}
