package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/cli"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// roleEnv makes this program one of those that are measured.
const roleEnv = "TIDEGATE_BENCH_ROLE"

const (
	// roleTidegate is the binary tidegate itself, with its arguments.
	roleTidegate = "tidegate"
	// roleIdle is a publisher whose handler does nothing; its argument is the address
	// of Redis.
	roleIdle = "idle"
)

// destination is what jobs are published to, concurrency how many calls a worker makes
// at once: the default of DESTINATION_<i>_CONCURRENCY.
const (
	destination = "pictures"
	concurrency = 10
)

// play is the main of a child. It ends when stdin does, so that no child outlives the
// program that started it.
func play(role string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	switch role {
	case roleTidegate:
		return cli.Run(ctx, cli.Process{
			Args: args, Environ: os.Environ(), Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		})
	case roleIdle:
		if err := publishNothing(ctx, args[0], stdout); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	fmt.Fprintln(stderr, "unknown role "+role)
	return 1
}

// publishNothing is a worker whose calls do nothing, until ctx ends.
func publishNothing(ctx context.Context, addr string, stdout io.Writer) error {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = rdb.Close() }()
	p, err := publisher.New(rdb, publisher.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	nothing := publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	if err := p.Handle(destination, nothing, publisher.Concurrency(concurrency)); err != nil {
		return err
	}
	go func() {
		select {
		case <-p.Started():
			fmt.Fprintln(stdout, "ready")
		case <-ctx.Done():
		}
	}()
	return p.Run(ctx)
}

// child is a process of ours.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	addr  string // of health and metrics; "" without them
	ended chan struct{}
	err   error // of the process; under ended
	errs  lines
}

// lines keeps what a child writes, for whoever waits for a line and for errors.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{} // closed at each write, and made anew
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew != nil {
		close(l.grew)
		l.grew = nil
	}
	return l.text.Write(p)
}

// read returns what was written, and a channel that is closed when there is more.
func (l *lines) read() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew == nil {
		l.grew = make(chan struct{})
	}
	return l.text.String(), l.grew
}

// startTimeout bounds the start of a child, stopTimeout its end.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// start runs a child. Its environment is env and nothing else.
func start(role string, env []string, args ...string) (*child, io.ReadCloser, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", role, err)
	}
	c := &child{cmd: exec.Command(self, args...), ended: make(chan struct{})} //nolint:noctx // stopped by its stdin, so that it ends in order
	c.cmd.Env = append([]string{roleEnv + "=" + role, "HOME=" + os.TempDir()}, env...)
	c.cmd.Stderr = &c.errs
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", role, err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", role, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", role, err)
	}
	return c, stdout, nil
}

// startIdle starts a publisher whose handler does nothing, and returns when it fetches.
func startIdle(addr string) (*child, error) {
	c, stdout, err := start(roleIdle, nil, addr)
	if err != nil {
		return nil, err
	}
	_, err = bufio.NewReader(stdout).ReadString('\n')
	c.follow()
	if err != nil {
		return nil, fmt.Errorf("start a publisher: %w", errors.Join(err, c.stop()))
	}
	return c, nil
}

// startWorker starts tidegate worker for so many destinations at url, and returns when
// it is ready.
func startWorker(ctx context.Context, redisURL, url string, destinations int) (*child, error) {
	env := []string{"REDIS_URL=" + redisURL, "OPS_ADDR=127.0.0.1:0", "LOG_FORMAT=json"}
	for i := range destinations {
		name := destination
		if i > 0 {
			name = fmt.Sprintf("%s-%d", destination, i)
		}
		env = append(env, fmt.Sprintf("DESTINATION_%d_NAME=%s", i, name), fmt.Sprintf("DESTINATION_%d_URL=%s", i, url))
	}
	c, _, err := start(roleTidegate, env, "worker")
	if err != nil {
		return nil, err
	}
	c.follow()
	if err := c.awaitReady(ctx); err != nil {
		return nil, fmt.Errorf("start a worker: %w", errors.Join(err, c.stop()))
	}
	return c, nil
}

// follow waits for the end of the process; nothing more is read from its stdout.
func (c *child) follow() {
	go func() {
		defer close(c.ended)
		c.err = c.cmd.Wait()
	}()
}

// awaitReady returns when the worker says where it serves its health and is ready.
func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for c.addr == "" {
		text, more := c.errs.read()
		c.addr = opsAddr(text)
		if c.addr != "" {
			break
		}
		select {
		case <-more:
		case <-c.ended:
			return errors.New("it has ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return poll(ctx, func() (bool, error) {
		_, _, err := get(ctx, "http://"+c.addr+"/readyz")
		return err == nil, nil
	})
}

// opsAddr finds the address in the log of a worker.
func opsAddr(log string) string {
	for line := range strings.Lines(log) {
		var entry struct{ Msg, Addr string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "health and metrics" {
			return entry.Addr
		}
	}
	return ""
}

// stop ends the process in order.
func (c *child) stop() error {
	_ = c.stdin.Close()
	kill := time.AfterFunc(stopTimeout, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	<-c.ended
	if c.err != nil {
		text, _ := c.errs.read()
		return fmt.Errorf("%w: %s", c.err, text)
	}
	return nil
}

// tidegate runs a command of the binary to its end and says how long it took.
func tidegate(redisURL string, args ...string) (time.Duration, error) {
	started := time.Now()
	c, stdout, err := start(roleTidegate, []string{"REDIS_URL=" + redisURL}, args...)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, stdout)
	c.follow()
	<-c.ended
	took := time.Since(started)
	if err = errors.Join(err, c.stop()); err != nil {
		return 0, fmt.Errorf("tidegate %s: %w", strings.Join(args, " "), err)
	}
	if n == 0 {
		return 0, fmt.Errorf("tidegate %s: it has printed nothing", strings.Join(args, " "))
	}
	return took, nil
}
