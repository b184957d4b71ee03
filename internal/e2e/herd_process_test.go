package e2e

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
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
)

// herdVariable makes this test binary a member of a herd; it holds its settings.
const herdVariable = "TIDEGATE_TEST_HERD"

// herdSettings are what the members of a herd have in common.
type herdSettings struct {
	Redis, API, Destination string
	Goroutines              int
	Cooldown, Lease         time.Duration
}

// The points at which a prober can be made to vanish. Whoever takes the order from
// the key of the herd does it, and says so in the list.
const (
	pointAsked    = "asked"    // Redis has granted the lease, and the process does not know yet
	pointGranted  = "granted"  // it knows, and has made no call
	pointCalled   = "called"   // the call is at the API
	pointAnswered = "answered" // the answer is there and not reported
)

func orderKey(destination string) string    { return destination + ":order" }
func vanishedKey(destination string) string { return destination + ":vanished" }

// The headers in which a member says with what leave it calls.
const (
	headerPID        = "X-Herd-Pid"
	headerGeneration = "X-Herd-Generation"
	headerProbe      = "X-Herd-Probe"
	headerUntil      = "X-Herd-Until" // end of the lease, unix ns
)

// member is one process of a herd: its goroutines ask one breaker for the leave to
// call, again and again, until standard input ends.
type member struct {
	herdSettings
	b      *breaker.Breaker
	orders *redis.Client
	client *http.Client
}

func herdMember(settings string) int {
	m := &member{}
	if err := json.Unmarshal([]byte(settings), &m.herdSettings); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := m.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (m *member) run(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: m.Redis, PoolSize: 2 * m.Goroutines, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	m.orders = redis.NewClient(&redis.Options{Addr: m.Redis, MaxRetries: -1})
	defer m.orders.Close()
	rdb.AddHook(m)
	m.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: m.Goroutines}, Timeout: m.Lease}
	var err error
	m.b, err = breaker.New(ctx, rdb, breaker.Options{
		Destination: m.Destination, Cooldown: m.Cooldown, ProbeTimeout: m.Lease, MaxInFlight: m.Goroutines,
	})
	if err != nil {
		return err
	}
	defer m.b.Close()
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var group sync.WaitGroup
	failures := make(chan error, m.Goroutines)
	for range m.Goroutines {
		group.Go(func() {
			if err := m.work(ctx); err != nil && ctx.Err() == nil {
				failures <- err
				stop()
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

func (m *member) work(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := m.b.Changed()
		permit, err := m.b.Allow(ctx)
		switch open, refused := errors.AsType[*breaker.OpenError](err); {
		case refused:
			timer := time.NewTimer(open.RetryAfter)
			select {
			case <-ctx.Done():
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
		case err != nil:
			return err
		default:
			if err := m.use(ctx, permit); err != nil {
				return err
			}
		}
	}
	return nil
}

// use makes the call, unless the lease has ended, and reports it.
func (m *member) use(ctx context.Context, permit breaker.Permit) error {
	ctx = context.WithoutCancel(ctx) // what was begun is finished and reported
	// One that has vanished once for longer than its lease does not do so again.
	fresh := func() bool { return permit.Probe() && time.Now().Before(permit.Until()) }
	if fresh() {
		m.vanish(pointGranted)
	}
	if until := permit.Until(); !until.IsZero() {
		if !time.Now().Before(until) {
			return permit.Release(ctx)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.API, nil)
	if err != nil {
		return err
	}
	req.Header.Set(headerPID, strconv.Itoa(os.Getpid()))
	req.Header.Set(headerGeneration, strconv.FormatUint(permit.Generation(), 10))
	req.Header.Set(headerProbe, strconv.FormatBool(permit.Probe()))
	req.Header.Set(headerUntil, strconv.FormatInt(permit.Until().UnixNano(), 10))
	resp, err := m.client.Do(req)
	outcome := breaker.Failure() // cut by the end of its lease
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			outcome = breaker.RateLimited(0)
		}
	}
	if fresh() {
		m.vanish(pointAnswered)
	}
	_, err = permit.Report(context.WithoutCancel(ctx), outcome)
	return err
}

// vanish stands still or dies here, if that was ordered.
func (m *member) vanish(point string) {
	ctx := context.Background()
	pid := os.Getpid()
	order, err := m.orders.Eval(ctx, `
		local how = string.match(redis.call('GET', KEYS[1]) or '', '^' .. ARGV[1] .. ' (%w+)$')
		if how then
			redis.call('DEL', KEYS[1])
			redis.call('LPUSH', KEYS[2], ARGV[2])
		end
		return how or ''`, []string{orderKey(m.Destination), vanishedKey(m.Destination)}, point, pid).Text()
	if err != nil {
		return // Redis is the test's: it goes when the test is over
	}
	switch order {
	case "kill":
		_ = syscall.Kill(pid, syscall.SIGKILL)
		select {}
	case "stop":
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		// It takes effect when the kernel sees to it.
		<-time.After(5 * time.Millisecond)
	}
}

// DialHook implements redis.Hook.
func (m *member) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (m *member) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook: a script that grants a lease is a point at which
// the process can vanish.
func (m *member) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(*redis.StringCmd); ok && err == nil {
			if answer := strings.Split(script.Val(), "\n"); len(answer) > 4 && answer[0] == "granted" && strings.HasPrefix(answer[4], "probe") {
				m.vanish(pointAsked)
			}
		}
		return err
	}
}

// process is a member as the test sees it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	err   bytes.Buffer
	ended bool
}

func startMember(t *testing.T, s herdSettings) *process {
	t.Helper()
	settings, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), herdVariable+"="+string(settings))
	p.cmd.Stderr = &p.err
	dieWithUs(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// finish ends the member in good order.
func (p *process) finish() {
	p.t.Helper()
	p.ended = true
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("member: %v: %s", err, &p.err)
	}
}

// died waits for a member that was killed.
func (p *process) died() {
	p.t.Helper()
	p.ended = true
	if err := p.cmd.Wait(); err == nil || p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Errorf("member: %v, want it killed: %s", err, &p.err)
	}
}
