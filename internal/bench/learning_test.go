package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// BenchmarkLearning measures what keys with a learned limit cost: memory, calls far from the limit
// beside those of keys that have never been refused, and how fast a worker empties a queue of jobs
// of such keys, with and without learning in turns.
func BenchmarkLearning(b *testing.B) {
	const keys = 10_000
	f := measureLearning(b, keys, 1_000_000)
	text := fmt.Sprintf("%s keys with a learned limit: %s bytes of Redis each. A worker that starts reads them in %.0f ms. A call under "+
		"such a key takes\n%.1f µs and %.2f commands; a call under a key that was never refused %.1f µs and %.2f.\n\n",
		count(keys), count(f.memory), f.start.Seconds()*1e3, f.learned.Seconds()*1e6, f.commands, f.fresh.Seconds()*1e6, f.freshCommands)
	p := drainPlan{rounds: *drainRounds, warmup: 10_000, jobs: 100_000} // so many that the start weighs little
	report(b, "benchmarks.md", "learning", text+measureKeyedDrain(b, p, keys))
}

// The contenders of measureKeyedDrain.
const (
	withLearning    = "learning"
	withoutLearning = "no learning"
)

// keyedDrain is a worker of which each key was refused before, and has been accepted since.
func keyedDrain(name string, keys int) drainContender {
	c := tidegateDrain()
	c.name = name
	c.enqueue = func(t testing.TB, rdb redis.UniversalClient, task drainTask) {
		check(t, learnKeys(t, rdb, keys, name == withLearning))
		batch := make([]*jobs.Spec, task.Enqueue)
		for i := range batch {
			batch[i] = jobs.New(destination, payload(usualPayload), jobs.Key(keyName("learned", i%keys)))
		}
		for _, r := range must(newClient(t, rdb).EnqueueMany(t.Context(), batch))(t) {
			check(t, r.Err)
		}
	}
	return c
}

// measureKeyedDrain returns a table with a row for each contender. The handler does nothing, so that
// what a breaker costs weighs most.
func measureKeyedDrain(t testing.TB, p drainPlan, keys int) string {
	t.Helper()
	p.contenders = []drainContender{keyedDrain(withoutLearning, keys), keyedDrain(withLearning, keys)}
	task := drainTask{Queue: destination, Concurrency: 10, Retention: int(retention.Seconds()), Payload: payload(usualPayload)}
	figures := make([][]drainFigures, len(p.contenders))
	for round := range p.rounds {
		for i, c := range p.contenders {
			f := drainOnce(t, p, c, task)
			progress(t, fmt.Sprintf("drain: round %d, %s: %.0f jobs/s", round+1, c.name, f.rate))
			figures[i] = append(figures[i], f)
		}
	}
	rows := [][]string{{"", "jobs/s", "of those without", "worker's CPU a job", "Redis's CPU a job", "commands a job"}}
	for i, c := range p.contenders {
		ratios := make([]float64, p.rounds)
		for round, f := range figures[i] {
			ratios[round] = f.rate / figures[0][round].rate
		}
		rows = append(rows, []string{
			c.name, count(median(figures[i], func(f drainFigures) float64 { return f.rate })), fmt.Sprintf("%.2f", median(ratios, itself)),
			fmt.Sprintf("%.0f µs", 1e6*median(figures[i], func(f drainFigures) float64 { return f.worker })),
			fmt.Sprintf("%.0f µs", 1e6*median(figures[i], func(f drainFigures) float64 { return f.redis })),
			fmt.Sprintf("%.1f", median(figures[i], func(f drainFigures) float64 { return f.commands })),
		})
	}
	return fmt.Sprintf("One worker empties a queue of %s jobs of these keys, 10 at a time, with a handler that does nothing. Rounds, in turns: %d; "+
		"medians.\n\n", count(float64(p.jobs)), p.rounds) + table(1, rows)
}

// learningFigures are bytes of Redis for a key with a learned limit, how long an instance takes to
// read them all, and how long a call takes and how many commands, under such a key and under a fresh one.
type learningFigures struct {
	memory                  float64
	start                   time.Duration
	learned, fresh          time.Duration
	commands, freshCommands float64
}

func measureLearning(t testing.TB, keys, calls int) (f learningFigures) {
	s := startRedis(t, "no")
	defer s.Stop()
	before := s.info(t, "memory", "used_memory")
	check(t, learnKeys(t, s.rdb, keys, true))
	started := time.Now()
	breakers := must(breaker.New(t.Context(), s.rdb, taught(true)))(t)
	f.start = time.Since(started)
	defer func() { check(t, breakers.Close()) }()
	f.memory = (s.info(t, "memory", "used_memory") - before) / float64(keys)
	f.fresh, f.freshCommands = timeCalls(t, s, breakers, "fresh", keys, calls)
	f.learned, f.commands = timeCalls(t, s, breakers, "learned", keys, calls)
	return f
}

// taught are the options of breakers while their keys learn.
func taught(learn bool) breaker.Options {
	return breaker.Options{Destination: destination, NoLearning: !learn, Cooldown: time.Millisecond, MaxInFlight: 1, Logger: silent}
}

// learnKeys has the API refuse calls of all keys.
func learnKeys(t testing.TB, rdb redis.UniversalClient, keys int, learn bool) error {
	breakers, err := breaker.New(t.Context(), rdb, taught(learn))
	if err != nil {
		return err
	}
	var all errgroup.Group
	const workers = 16
	for w := range workers {
		all.Go(func() error {
			for i := w; i < keys; i += workers {
				if err := learnKey(t, breakers.Key(keyName("learned", i))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(all.Wait(), breakers.Close())
}

func keyName(kind string, i int) string { return kind + "-" + strconv.Itoa(i) }

// learnKey has the API refuse calls of the key until it opens, and then accept them.
func learnKey(t testing.TB, b *breaker.Breaker) error {
	for range breaker.DefaultFailureThreshold {
		p, err := b.Wait(t.Context(), 0)
		if err == nil {
			_, err = p.Report(t.Context(), breaker.RateLimited(0).WithScope(breaker.ScopeUser))
		}
		if err != nil {
			return err
		}
	}
	for range 3 {
		p, err := b.Wait(t.Context(), 0)
		if err == nil {
			_, err = p.Report(t.Context(), breaker.Success())
		}
		if err != nil {
			return err
		}
	}
	if b.View().State != breaker.Closed {
		return errors.New("key " + b.Name() + " has not recovered")
	}
	return nil
}

// Two scripts count a call under a learned limit; no command one under a key that was never refused.
func TestCostOfLearnedKeys(t *testing.T) {
	t.Parallel()
	f := measureLearning(t, 20, 2000)
	if f.memory <= 0 || f.learned <= 0 || f.commands > 40 || f.freshCommands > .05 {
		t.Errorf("20 keys took %v bytes each, and a call %v and %v commands; of a fresh one %v", f.memory, f.learned, f.commands, f.freshCommands)
	}
}

func TestKeyedDrain(t *testing.T) {
	t.Parallel()
	if got := measureKeyedDrain(t, drainPlan{rounds: 1, warmup: 10, jobs: 300}, 20); !strings.Contains(got, "| "+withoutLearning+" |") || !strings.Contains(got, "| "+withLearning+" ") {
		t.Errorf("no row of each:\n%s", got)
	}
}

// timeCalls returns how long a call takes, and how many commands.
func timeCalls(t testing.TB, s *redisServer, b *breaker.Breaker, kind string, keys, calls int) (each time.Duration, commands float64) {
	of := make([]*breaker.Breaker, keys)
	for i := range of {
		of[i] = b.Key(keyName(kind, i))
	}
	s.ResetStats(t)
	started := time.Now()
	for i := range calls {
		p, err := of[i%keys].Allow(t.Context())
		check(t, err)
		_, err = p.Report(t.Context(), breaker.Success())
		check(t, err)
	}
	each = time.Since(started) / time.Duration(calls)
	return each, float64(commandsOf(t, s.Server)) / float64(calls)
}
