package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// fillKeyed puts many jobs into the queue, the first one to run first.
func (s *testQueue) fillKeyed(n int, of func(i int) (id, key string)) {
	s.t.Helper()
	ctx := context.Background()
	for from := 0; from < n; from += 1000 {
		_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := from; i < min(from+1000, n); i++ {
				id, key := of(i)
				pipe.HSet(ctx, store.TaskKey(s.queue, id), store.FieldMsg, s.message(id), store.FieldState, store.StatePending, store.FieldKey, key)
				pipe.LPush(ctx, store.PendingKey(s.queue), id)
			}
			return nil
		})
		s.must(err)
	}
}

// perScript is how long a script has kept Redis busy on average. The longest one says
// nothing: it was interrupted by whatever else the machine does.
func perScript(t *testing.T, rdb redis.UniversalClient) time.Duration {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, value, _ := strings.Cut(line, "usec_per_call=")
	value, _, _ = strings.Cut(value, ",")
	us, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(us * float64(time.Microsecond))
}

// Tens of thousands of jobs of a key that lets nothing through hold up neither the other
// jobs nor Redis, before them or among them.
func TestManyHeldJobs(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const blocked, others = 20_000, 500
	for name, of := range map[string]func(i int) (string, string){
		"in front of the others": func(i int) (string, string) {
			if i < blocked {
				return fmt.Sprint("k", i), "k"
			}
			return fmt.Sprint("o", i), "o"
		},
		"among the others": func(i int) (string, string) {
			if i%(blocked/others+1) != 0 {
				return fmt.Sprint("k", i), "k"
			}
			return fmt.Sprint("o", i), "o"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := queueIn(t, server.Client(t))
			s.fillKeyed(blocked+others, of)
			server.ResetStats(t)
			g := newKeyGate()
			g.block("k", time.Now().Add(time.Hour))
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 10, Retention: time.Hour, Gate: g, Worker: "host:1"})
			var done atomic.Int64
			all := make(chan struct{})
			begin := time.Now()
			stop := runServer(t, c, completing(func(id string) {
				if id[0] == 'k' {
					t.Errorf("%s was handed out", id)
				}
				if done.Add(1) == others {
					close(all)
				}
			}))
			select {
			case <-all:
			case <-time.After(3 * time.Minute):
				t.Fatalf("%d of %d others were run", done.Load(), others)
			}
			took, script := time.Since(begin), perScript(t, s.rdb)
			stop()
			t.Logf("%d jobs and %d of a held key took %s; %s per script, %d scripts", others, blocked, took.Round(time.Millisecond), script, server.CommandStats(t)["evalsha"])
			// Twice what a busy machine has shown.
			if script > 30*time.Millisecond || took > 100*time.Second {
				t.Errorf("%s, and %s per script", took, script)
			}
			c.Finish()
			if n := len(g.asked("k")); n > 10 {
				t.Errorf("the gate was asked %d times for the key", n)
			}
			pending := s.rdb.LLen(context.Background(), store.PendingKey(s.queue)).Val()
			held := s.rdb.ZCard(context.Background(), store.HeldJobsKey(s.queue, "k")).Val()
			if all := s.rdb.ZCard(context.Background(), store.HeldKey(s.queue)).Val(); all != held || held+pending != blocked {
				t.Errorf("%d held, %d by their key, %d pending: want %d", all, held, pending, blocked)
			}
		})
	}
}

// Each job runs once, however keys open and close while workers fetch. With one worker that runs one job
// at a time, the jobs of a key run in their order.
func TestNoHeldJobIsLost(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			const n, keys = 600, 4
			keyOf := func(i int) string { return fmt.Sprint("k", i%keys) }
			s.fillKeyed(n, func(i int) (string, string) { return fmt.Sprintf("j%04d", i), keyOf(i) })
			g := newKeyGate()
			var mu sync.Mutex
			runs := map[string]int{}
			last := map[string]string{}
			all := make(chan struct{})
			var clients []*Engine
			var stops []func()
			for range workers {
				c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 1, Retention: time.Hour, Gate: g, PollMin: time.Millisecond, PollMax: 5 * time.Millisecond})
				clients = append(clients, c)
			}
			for _, c := range clients {
				stops = append(stops, runServer(t, c, completing(func(id string) {
					mu.Lock()
					defer mu.Unlock()
					if runs[id]++; runs[id] > 1 {
						t.Errorf("%s was run again", id)
					}
					i, err := strconv.Atoi(id[1:])
					if key := keyOf(i); err != nil || workers == 1 && last[key] > id {
						t.Errorf("%s was run after %s of the same key", id, last[key])
					}
					last[keyOf(i)] = id
					if len(runs) == n {
						close(all)
					}
				})))
			}
			flip := time.NewTicker(2 * time.Millisecond)
			defer flip.Stop()
			deadline := time.After(3 * time.Minute)
			for i, over := 0, false; !over; i++ {
				select {
				case <-flip.C:
					if key := keyOf(i); i/keys%2 == 0 {
						g.block(key, time.Now().Add(time.Duration(i%20)*time.Millisecond))
					} else {
						g.open(key)
						for _, c := range clients {
							c.KeyOpened(key)
						}
					}
				case <-deadline:
					mu.Lock()
					t.Fatalf("%d of %d were run", len(runs), n)
				case <-all:
					over = true
				}
			}
			for i, stop := range stops {
				stop()
				clients[i].Finish()
			}
			look := s.look()
			for _, set := range []string{"pending", "active", "lease", "held", "held_keys", "tombstones"} {
				if look[set] != "" {
					t.Errorf("%s: %s", set, look[set])
				}
			}
		})
	}
}
