package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// process is this binary in one of its roles.
type process struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	out, log output // stdout and stderr
	stopping sync.Once
	ended    chan struct{}
	err      error // under ended
}

// output is what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{} // closed at the next write; may be nil
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grew != nil {
		close(o.grew)
		o.grew = nil
	}
	return o.text.Write(p)
}

// read returns what was written, and a channel that is closed when there is more.
func (o *output) read() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grew == nil {
		o.grew = make(chan struct{})
	}
	return o.text.String(), o.grew
}

// startProcess starts a process with nothing but env in its environment. It ends with
// the test or benchmark.
func startProcess(t testing.TB, role string, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, inRole(t, role, env, args...))
}

func inRole(t testing.TB, role string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(must(os.Executable())(t), args...)
	cmd.Env = append([]string{roleEnv + "=" + role, "HOME=" + os.TempDir()}, env...)
	return cmd
}

// startCommand starts another program, which ends when its stdin does. It ends with the test
// or benchmark.
func startCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := launch(t, cmd)
	t.Cleanup(func() { p.stop(t) })
	return p
}

func launch(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.log
	p.stdin = must(p.cmd.StdinPipe())(t)
	check(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p
}

// await returns when a line of the output is accepted.
func (p *process) await(ctx context.Context, o *output, accept func(line string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for ended := false; ; {
		text, more := o.read()
		for line := range strings.Lines(text) {
			if strings.HasSuffix(line, "\n") && accept(line) {
				return nil
			}
		}
		if ended {
			said, _ := p.log.read()
			return fmt.Errorf("the process has ended: %w: %s", p.err, said)
		}
		select {
		case <-more:
		case <-p.ended:
			ended = true
		case <-ctx.Done():
			return fmt.Errorf("wait for a process: %w", ctx.Err())
		}
	}
}

// stop ends the process in order, once.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.stopping.Do(func() {
		_ = p.stdin.Close()
		kill := time.AfterFunc(15*time.Second, func() { _ = p.cmd.Process.Kill() })
		defer kill.Stop()
		<-p.ended
		if p.err != nil {
			text, _ := p.log.read()
			t.Errorf("a process has ended: %v: %s", p.err, text)
		}
	})
}

// logEntry is what benchmarks read of a line of a log.
type logEntry struct{ Msg, Addr, URL string }

// logged accepts a line with a message, and keeps it.
func logged(msg string, entry *logEntry) func(string) bool {
	return func(line string) bool {
		var e logEntry
		if json.Unmarshal([]byte(line), &e) != nil || e.Msg != msg {
			return false
		}
		*entry = e
		return true
	}
}

// startIdle starts publishers in one process whose handlers do nothing, and returns when all
// fetch. They serve the same destinations.
func startIdle(t testing.TB, redisAddr string, publishers, destinations int) *process {
	t.Helper()
	p := startProcess(t, roleIdle, nil, redisAddr, strconv.Itoa(publishers), strconv.Itoa(destinations))
	check(t, p.await(t.Context(), &p.out, func(string) bool { return true }))
	return p
}

// publishNothing runs publishers whose handlers do nothing until ctx ends.
func publishNothing(ctx context.Context, args []string, stdout io.Writer) error {
	publishers, err := strconv.Atoi(args[1])
	destinations, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	nothing := publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	running, ctx := errgroup.WithContext(ctx)
	var started []<-chan struct{}
	for range publishers {
		rdb := connect(args[0]) // each has its connections
		defer func() { _ = rdb.Close() }()
		p, err := publisher.New(rdb, publisher.Options{Logger: silent})
		if err != nil {
			return err
		}
		for _, name := range destinationNames(destinations) {
			if err := p.Handle(name, nothing, publisher.Concurrency(concurrency)); err != nil {
				return err
			}
		}
		running.Go(func() error { return p.Run(ctx) })
		started = append(started, p.Started())
	}
	for _, s := range started {
		select {
		case <-s:
		case <-ctx.Done():
		}
	}
	fmt.Fprintln(stdout, "ready")
	<-ctx.Done() // then the process ends: to stop many in order takes long
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// startWorker starts tidegate worker for a number of destinations at url. When the worker is ready,
// startWorker returns it and the address of its health and metrics.
func startWorker(t testing.TB, redisURL, url string, destinations int) (*process, string) {
	t.Helper()
	env := []string{"REDIS_URL=" + redisURL, "OPS_ADDR=127.0.0.1:0", "LOG_FORMAT=json"}
	for i, name := range destinationNames(destinations) {
		env = append(env, fmt.Sprintf("DESTINATION_%d_NAME=%s", i, name), fmt.Sprintf("DESTINATION_%d_URL=%s", i, url))
	}
	p := startProcess(t, roleTidegate, env, "worker")
	var health logEntry
	check(t, p.await(t.Context(), &p.log, logged("health and metrics", &health)))
	poll(t, "the worker is ready", func() bool {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health.Addr+"/readyz", http.NoBody))(t)
		resp, err := scraper.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p, health.Addr
}

func TestAProcessThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	p := launch(t, inRole(t, roleTidegate, []string{"REDIS_URL=redis://127.0.0.1:1", "DESTINATION_0_NAME=" + destination, "DESTINATION_0_URL=no address"}, "worker"))
	err := p.await(t.Context(), &p.log, logged("health and metrics", new(logEntry)))
	if err == nil || !strings.Contains(err.Error(), "DESTINATION_0_URL") {
		t.Errorf("error %v, want one that names DESTINATION_0_URL", err)
	}
}
