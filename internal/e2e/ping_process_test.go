package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// pingVariable makes this test binary a process that pings the Redis it names every
// millisecond until standard input ends, and prints how long that took.
const pingVariable = "TIDEGATE_TEST_PING"

func pingRedis(addr string) int {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1})
	defer rdb.Close()
	ctx := context.Background()
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var took []time.Duration
	for !over.Load() {
		<-tick.C
		started := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	if len(took) < 100 {
		fmt.Fprintln(os.Stderr, "stopped too soon")
		return 1
	}
	fmt.Println(took[len(took)*99/100].Nanoseconds(), took[len(took)-1].Nanoseconds())
	return 0
}

// pinger is such a process. It is one of its own so that it measures Redis, and not
// how busy the test is.
type pinger struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   bytes.Buffer
	err   bytes.Buffer
	ended bool
}

func startPinger(f *fleet) *pinger {
	f.t.Helper()
	p := &pinger{t: f.t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), pingVariable+"="+f.server.Addr())
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	dieWithUs(p.cmd)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	favour(f.t, p.cmd.Process.Pid)
	return p
}

// finish returns the 99th percentile and the slowest.
func (p *pinger) finish() (p99, slowest time.Duration) {
	p.t.Helper()
	p.ended = true
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("pinger: %v: %s", err, &p.err)
	}
	if _, err := fmt.Sscan(p.out.String(), (*int64)(&p99), (*int64)(&slowest)); err != nil {
		p.t.Fatalf("pinger said %q: %v", &p.out, err)
	}
	return p99, slowest
}

// favour has a process run before everything else on the machine, if we may: what was
// made to wait for a processor in its middle looks slow.
func favour(t *testing.T, pid int) bool {
	t.Helper()
	if out, err := exec.Command("chrt", "--all-tasks", "--rr", "--pid", "1", strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Logf("process %d has no priority (chrt: %v %s): on a busy machine it looks slower than it is", pid, err, out)
		return false
	}
	return true
}
