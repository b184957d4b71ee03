//go:build soak && linux

package publisher_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// scriptTimes is a hook that sends scripts one at a time and measures how long each keeps Redis
// busy. What else the machine does does not count.
type scriptTimes struct {
	t     *testing.T
	s     *redistest.Server
	log   redis.UniversalClient
	mu    sync.Mutex // held while a script runs
	worst map[string]time.Duration
	calls map[string]int
}

func (*scriptTimes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *scriptTimes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return m.measure(cmd, func() error { return next(ctx, cmd) })
	}
}

func (m *scriptTimes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if nameOf(cmds[0]) == "" {
			return next(ctx, cmds)
		}
		var errs []error
		for _, cmd := range cmds {
			errs = append(errs, m.measure(cmd, func() error { return next(ctx, []redis.Cmder{cmd}) }))
		}
		return cmp.Or(errs...)
	}
}

// nameOf names the script that a command runs; "" for another command.
func nameOf(cmd redis.Cmder) string {
	if cmd.Name() != "evalsha" {
		return ""
	}
	sha, _ := cmd.Args()[1].(string)
	return cmp.Or(store.ScriptName(sha), "breaker "+sha[:min(6, len(sha))])
}

func (m *scriptTimes) measure(cmd redis.Cmder, call func() error) error {
	name := nameOf(cmd)
	if name == "" {
		return call()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.s.CPU(m.t)
	err := call()
	took := m.s.CPU(m.t) - before
	if took > slow {
		took = min(took, m.logged(cmd)) // the server may have expired keys meanwhile
	}
	m.worst[name] = max(m.worst[name], took)
	m.calls[name]++
	return err
}

// slow is how long the calls take that the server logs.
const slow = 2 * time.Millisecond

// logged is how long the call took, by the server's log of slow calls, which it empties. The
// machine may have run something else meanwhile.
func (m *scriptTimes) logged(cmd redis.Cmder) (longest time.Duration) {
	calls, err := m.log.SlowLogGet(m.t.Context(), 1000).Result()
	if err != nil {
		m.t.Error(err)
	}
	for _, c := range calls {
		if isOf(c.Args, cmd.Args()) {
			longest = max(longest, c.Duration)
		}
	}
	m.log.Do(m.t.Context(), "SLOWLOG", "RESET")
	return longest
}

// isOf compares the arguments of a call with those that the log has kept: 31, the first 128 bytes
// of each.
func isOf(logged []string, args []any) bool {
	for i := range min(len(logged), len(args), 31) {
		if arg := fmt.Sprint(args[i]); len(arg) <= 128 && arg != logged[i] {
			return false
		}
	}
	return true
}

func (m *scriptTimes) report(within time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.worst)) {
		m.t.Logf("%-20s %7d calls, the longest %7.2f ms", name, m.calls[name], float64(m.worst[name].Microseconds())/1000)
		if m.worst[name] > within {
			m.t.Errorf("a call of %s took %s, want at most %s", name, m.worst[name], within)
		}
	}
}

// No script keeps Redis busy for more than 10 ms, however many jobs, children and keys there are.
func TestSoakLongestScripts(t *testing.T) {
	const within = 10 * time.Millisecond
	none := func(context.Context, *jobs.Job) error { return nil }
	quiet := func(b *fixture) publisher.Options {
		o := b.options()
		o.Observers = nil
		return o
	}
	enqueue := func(b *fixture, n int, of func(i int) *jobs.Spec) {
		for from := 0; from < n; from += 10_000 {
			specs := make([]*jobs.Spec, min(10_000, n-from))
			for i := range specs {
				specs[i] = of(from + i)
			}
			if _, err := b.client.EnqueueMany(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
		}
	}
	done := func(b *fixture, what string) {
		redistest.Await(t, 10*time.Minute, what, func() bool {
			<-time.After(time.Second)
			stats, err := b.client.Stats(t.Context(), b.dest)
			return err == nil && stats[0].Backlog == 0
		})
	}
	for name, play := range map[string]func(t *testing.T, b *fixture){
		"200,000 jobs due in a second": func(t *testing.T, b *fixture) {
			due := time.Now().Add(time.Minute)
			enqueue(b, 200_000, func(i int) *jobs.Spec {
				return jobs.New(b.dest, i, jobs.At(due.Add(time.Duration(i)*5*time.Microsecond)))
			})
			b.run(quiet(b), none, publisher.Concurrency(100))
			done(b, "all have run")
		},
		"a parent of 100,000 children completes": func(t *testing.T, b *fixture) {
			enqueue(b, 1, func(int) *jobs.Spec { return jobs.New(b.dest, 0, jobs.ID("parent")) })
			enqueue(b, 100_000, func(i int) *jobs.Spec { return jobs.New(b.dest, i, jobs.After("parent")) })
			b.run(quiet(b), none, publisher.Concurrency(100))
			done(b, "all have run")
		},
		"a parent of 100,000 children fails": func(t *testing.T, b *fixture) {
			enqueue(b, 1, func(int) *jobs.Spec { return jobs.New(b.dest, 0, jobs.ID("parent")) })
			enqueue(b, 100_000, func(i int) *jobs.Spec { return jobs.New(b.dest, i, jobs.After("parent")) })
			b.run(quiet(b), func(context.Context, *jobs.Job) error { return errors.New("refused") }, publisher.Concurrency(100))
			done(b, "all are cancelled")
		},
		"20,000 keys open and close": func(t *testing.T, b *fixture) {
			enqueue(b, 40_000, func(i int) *jobs.Spec { return jobs.New(b.dest, i, jobs.Key(fmt.Sprint("k", i%20_000))) })
			var calls sync.Map
			b.run(quiet(b), func(_ context.Context, j *jobs.Job) error {
				n, _ := calls.LoadOrStore(j.Key, new(atomic.Int64))
				if n.(*atomic.Int64).Add(1) == 1 {
					return jobs.RateLimited(time.Minute, jobs.ScopeUser)
				}
				return nil
			}, publisher.Concurrency(100))
			done(b, "all have run")
		},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			s := redistest.Start(t)
			b := fixtureOn(t, s)
			if err := b.rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", strconv.FormatInt(slow.Microseconds(), 10)).Err(); err != nil {
				t.Fatal(err)
			}
			m := &scriptTimes{t: t, s: s, log: s.Client(t), worst: map[string]time.Duration{}, calls: map[string]int{}}
			b.rdb.AddHook(m)
			play(t, b)
			m.report(within)
		})
	}
}
