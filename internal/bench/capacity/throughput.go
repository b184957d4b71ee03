package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/bench/rig"
	"github.com/tidegate/tidegate/jobs"
)

// median of what so many rounds have shown.
func median(rounds int, round func() (float64, error)) (float64, error) {
	values := make([]float64, rounds)
	for i := range values {
		var err error
		if values[i], err = round(); err != nil {
			return 0, err
		}
	}
	return rig.Median(values), nil
}

// measureEnqueue enqueues one by one from 1 and from 16 goroutines, and many at once.
func measureEnqueue(ctx context.Context, t testing.TB, p plan, f *figures) error {
	s, err := newStore(t, "")
	if err != nil {
		return err
	}
	rate := func(n int, do func() error) (float64, error) {
		if err := s.rdb.FlushAll(ctx).Err(); err != nil {
			return 0, err
		}
		started := time.Now()
		err := do()
		return float64(n) / time.Since(started).Seconds(), err
	}
	single := func(goroutines int) (float64, error) {
		return median(p.rounds, func() (float64, error) {
			return rate(p.single, func() error { return s.enqueueSingly(ctx, p.single, goroutines) })
		})
	}
	if f.enqueue1, err = single(1); err != nil {
		return err
	}
	if f.enqueue16, err = single(16); err != nil {
		return err
	}
	f.enqueueMany, err = median(p.rounds, func() (float64, error) {
		return rate(p.many, func() error { return s.fill(ctx, p.many, usualPayload) })
	})
	return err
}

func (s *redisServer) enqueueSingly(ctx context.Context, n, goroutines int) error {
	body := payload(usualPayload)
	g, ctx := errgroup.WithContext(ctx)
	for i := range goroutines {
		share := n / goroutines
		if i < n%goroutines {
			share++
		}
		g.Go(func() error {
			for range share {
				if _, err := s.client.Enqueue(ctx, jobs.New(destination, body)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// measureIdleHandler publishes with handlers that do nothing, in 1 and in 3 processes.
func measureIdleHandler(ctx context.Context, t testing.TB, p plan, f *figures) (err error) {
	for _, c := range []struct {
		processes int
		into      *float64
	}{{1, &f.idle1}, {3, &f.idle3}} {
		*c.into, err = median(p.rounds, func() (float64, error) {
			s, err := newStore(t, "")
			if err != nil {
				return 0, err
			}
			defer s.Stop()
			return s.drain(ctx, p.idle, c.processes, s.completed, func() (*child, error) { return startIdle(s.Addr()) }, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureHTTP publishes with workers as they are, to an API that answers at once.
func measureHTTP(ctx context.Context, t testing.TB, p plan, f *figures) (err error) {
	f.http1, err = median(p.rounds, func() (float64, error) { return drainHTTP(ctx, t, p.http, 1, f) })
	if err != nil {
		return err
	}
	f.http3, err = median(p.rounds, func() (float64, error) { return drainHTTP(ctx, t, p.http, 3, nil) })
	return err
}

// drainHTTP publishes once. load, if not nil, gets what the worker and Redis needed.
func drainHTTP(ctx context.Context, t testing.TB, n, processes int, load *figures) (float64, error) {
	s, err := newStore(t, "")
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	a, err := newAPI(t)
	if err != nil {
		return 0, err
	}
	before, err := s.info(ctx, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	published := func(context.Context) (int64, error) { return a.calls.Load(), nil }
	worker := func() (*child, error) { return startWorker(ctx, s.URL(), a.url, 1) }
	rate, err := s.drain(ctx, n, processes, published, worker, func(w *child) error {
		if load == nil {
			return nil
		}
		load.workerPeak = max(load.workerPeak, memory(w.cmd.Process.Pid, "VmHWM"))
		connections, err := s.connections(ctx)
		load.connectionsBusy = max(load.connectionsBusy, connections)
		return err
	})
	if err != nil || load == nil {
		return rate, err
	}
	// The workers have ended, and with them their connections' memory.
	after, err := s.info(ctx, "memory", "used_memory")
	load.completedJob = (after - before) / float64(n)
	return rate, err
}

// measureSync publishes with the other settings of appendfsync.
func measureSync(ctx context.Context, t testing.TB, p plan, f *figures) error {
	for _, c := range []struct {
		fsync                      string
		enqueue1, enqueue16, drain *float64
	}{
		{"everysec", &f.everysec.enqueue1, &f.everysec.enqueue16, &f.everysec.drain},
		{"always", &f.always.enqueue1, &f.always.enqueue16, &f.always.drain},
		{"no", &f.never.enqueue1, &f.never.enqueue16, &f.never.drain},
	} {
		s, err := newStore(t, c.fsync)
		if err != nil {
			return err
		}
		for _, e := range []struct {
			goroutines int
			into       *float64
		}{{1, c.enqueue1}, {16, c.enqueue16}} {
			started := time.Now()
			if err := s.enqueueSingly(ctx, p.synced/5, e.goroutines); err != nil {
				return err
			}
			*e.into = float64(p.synced/5) / time.Since(started).Seconds()
		}
		if err := s.rdb.FlushAll(ctx).Err(); err != nil {
			return err
		}
		before, err := s.info(ctx, "persistence", "aof_current_size")
		if err != nil {
			return err
		}
		*c.drain, err = s.drain(ctx, p.synced, 1, s.completed, func() (*child, error) { return startIdle(s.Addr()) }, nil)
		if err != nil {
			return err
		}
		after, err := s.info(ctx, "persistence", "aof_current_size")
		if err != nil {
			return err
		}
		f.aofOfJob = (after - before) / float64(p.synced)
		s.Stop()
	}
	return nil
}

// completed counts completed jobs.
func (s *redisServer) completed(ctx context.Context) (int64, error) {
	return s.rdb.ZCard(ctx, store.CompletedKey(store.Queue(destination, store.Default))).Result()
}

// patience is when a backlog that does not get smaller is given up.
const patience = 2 * time.Minute

// drain publishes n jobs by so many processes and returns how many a second. They find
// the destination paused and begin together; what is measured is the time between a
// quarter and nine tenths of the jobs, when all are at it. during, if not nil, is
// called now and then with the first process.
func (s *redisServer) drain(ctx context.Context, n, processes int, published func(context.Context) (int64, error),
	begin func() (*child, error), during func(*child) error,
) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := s.client.PauseDestination(ctx, destination); err != nil {
		return 0, err
	}
	if err := s.fill(ctx, n, usualPayload); err != nil {
		return 0, err
	}
	fleet := make([]*child, 0, processes)
	defer func() {
		for _, c := range fleet {
			err = errors.Join(err, c.stop())
		}
	}()
	for range processes {
		c, err := begin()
		if err != nil {
			return 0, err
		}
		fleet = append(fleet, c)
	}
	if _, err := s.client.ResumeDestination(ctx, destination); err != nil {
		return 0, err
	}
	var from, to mark
	looks := 0
	err = poll(ctx, func() (bool, error) {
		done, err := published(ctx)
		if err != nil {
			return false, err
		}
		now := mark{time.Now(), done}
		if from.done == 0 && done >= int64(n)/4 {
			from = now
		}
		if to.done == 0 && done >= int64(n)*9/10 {
			to = now
		}
		const every = 20 // looks
		if looks++; during != nil && looks%every == 0 && done > 0 && done < int64(n) {
			if err := during(fleet[0]); err != nil {
				return false, err
			}
		}
		return done >= int64(n), nil
	})
	if err == nil {
		// What was published last is to be completed too.
		err = poll(ctx, func() (bool, error) {
			done, err := s.completed(ctx)
			return done >= int64(n), err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("%d jobs were not published: %w", n, err)
	}
	return to.since(from), nil
}

// mark is how far publishing was at an instant.
type mark struct {
	at   time.Time
	done int64
}

// since is the rate between two marks; of one and the same, 0.
func (m mark) since(from mark) float64 {
	seconds := m.at.Sub(from.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(m.done-from.done) / seconds
}
