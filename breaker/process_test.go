package breaker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A test that needs real processes runs this test binary again in a role.
const (
	roleVariable        = "BREAKER_TEST_ROLE"
	addrVariable        = "BREAKER_TEST_ADDR"
	destinationVariable = "BREAKER_TEST_DESTINATION"
)

const (
	racers       = 16 // goroutines of a racing process
	raceCooldown = 100 * time.Millisecond
)

func raceOptions(destination string) Options {
	return Options{Destination: destination, FailureThreshold: 1, Cooldown: raceCooldown, ProbeTimeout: 2 * time.Second}
}

func runRole(role string) error {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(addrVariable), PoolSize: 2 * racers, MaxRetries: -1})
	defer rdb.Close()
	destination := os.Getenv(destinationVariable)
	switch role {
	case "race":
		return race(ctx, rdb, destination)
	default:
		return fmt.Errorf("no role %q", role)
	}
}

// race has goroutines compete for every probe until standard input ends. The
// API they call always answers 429, and counts in Redis, apart from the breaker.
func race(ctx context.Context, rdb *redis.Client, destination string) error {
	b, err := New(ctx, rdb, raceOptions(destination))
	if err != nil {
		return err
	}
	defer b.Close()
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	var group sync.WaitGroup
	failures := make(chan error, racers)
	for range racers {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				changed := b.Changed()
				permit, err := b.Allow(ctx)
				if open, ok := errors.AsType[*OpenError](err); ok {
					timer := time.NewTimer(open.RetryAfter)
					select {
					case <-stop:
					case <-changed:
					case <-timer.C:
					}
					timer.Stop()
					continue
				}
				if err == nil {
					err = callLimitedAPI(ctx, rdb, destination, permit)
				}
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

func callLimitedAPI(ctx context.Context, rdb *redis.Client, api string, permit Permit) error {
	if !permit.Probe() {
		return errors.New("a permit without a lease while the breaker was never CLOSED")
	}
	inFlight, err := rdb.Incr(ctx, api+":in-flight").Result()
	if err != nil {
		return err
	}
	if inFlight != 1 {
		rdb.Incr(ctx, api+":overlaps")
	}
	for range 10 { // the call takes a while
		rdb.Ping(ctx)
	}
	rdb.Incr(ctx, api+":calls")
	rdb.Decr(ctx, api+":in-flight")
	_, err = permit.Report(ctx, RateLimited(0))
	return err
}

// child is another process in a role.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	err   strings.Builder
}

func startChild(t *testing.T, role string, s *redistest.Server, destination string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role, addrVariable+"="+s.Addr(), destinationVariable+"="+destination)
	c.cmd.Stderr = &c.err
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin, c.out = stdin, bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// finish ends the child in good order.
func (c *child) finish(t *testing.T) {
	t.Helper()
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v: %s", err, &c.err)
	}
}

func TestProcessesNeverProbeTogether(t *testing.T) {
	t.Parallel()
	const cooldowns = 20
	s := redistest.Shared(t)
	rdb := s.Client(t)
	d := redistest.Name(t, "race")
	if _, err := DefaultNamespace.Trip(t.Context(), rdb, d, TripOptions{For: raceCooldown}); err != nil {
		t.Fatal(err)
	}
	children := []*child{startChild(t, "race", s, d), startChild(t, "race", s, d)}
	redistest.Eventually(t, "20 cooldowns", func() bool {
		status, err := DefaultNamespace.Get(t.Context(), rdb, d)
		return err == nil && status.Probes >= cooldowns
	})
	for _, c := range children {
		c.finish(t)
	}
	status, err := DefaultNamespace.Get(t.Context(), rdb, d)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := rdb.Get(t.Context(), d+":calls").Int()
	if err != nil {
		t.Fatal(err)
	}
	if overlaps := rdb.Exists(t.Context(), d+":overlaps").Val(); overlaps != 0 {
		t.Errorf("two probes met")
	}
	if calls != status.Probes || status.Wasted != calls {
		t.Errorf("%d calls for %d failed probes, %d wasted: want one call per cooldown", calls, status.Probes, status.Wasted)
	}
	checkHistory(t, rdb, d)
}

// checkHistory checks that no cooldown was cut short and none was tested twice.
func checkHistory(t *testing.T, rdb redis.UniversalClient, d string) {
	t.Helper()
	events, err := historyOf(t.Context(), rdb, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events[1:] {
		before := events[i]
		switch {
		case e.Generation <= before.Generation:
			t.Errorf("generation %d after %d", e.Generation, before.Generation)
		case e.Incident != before.Incident:
			t.Errorf("incident %s after %s", e.Incident, before.Incident)
		case before.To == Open && (e.From != Open || e.To != HalfOpen || e.At.Before(before.OpenUntil)):
			t.Errorf("after %+v: %+v", before, e)
		case before.To == HalfOpen && (e.From != HalfOpen || e.To != Open):
			t.Errorf("after %+v: %+v", before, e)
		}
	}
}
