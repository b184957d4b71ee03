package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/jobs"
)

// measureEnqueue enqueues one by one from 1 and from 16 goroutines, and many at once.
func measureEnqueue(t testing.TB, p capacityPlan, f *capacityFigures) {
	s := startRedis(t, "everysec")
	rate := func(n int, enqueue func()) float64 {
		return medianOf(p.rounds, func() float64 {
			check(t, s.rdb.FlushAll(t.Context()).Err())
			started := time.Now()
			enqueue()
			return float64(n) / time.Since(started).Seconds()
		})
	}
	f.enqueue1 = rate(p.single, func() { s.enqueueSingly(t, p.single, 1) })
	f.enqueue16 = rate(p.single, func() { s.enqueueSingly(t, p.single, 16) })
	f.enqueueMany = rate(p.many, func() { s.fill(t, p.many, usualPayload) })
}

// enqueueSingly enqueues n jobs one by one and returns how many a second.
func (s *redisServer) enqueueSingly(t testing.TB, n, goroutines int) float64 {
	t.Helper()
	body := payload(usualPayload)
	started := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
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
	check(t, g.Wait())
	return float64(n) / time.Since(started).Seconds()
}

// measureIdleHandler publishes with handlers that do nothing, in 1 and in 3 processes.
func measureIdleHandler(t testing.TB, p capacityPlan, f *capacityFigures) {
	drain := func(processes int) float64 {
		return medianOf(p.rounds, func() float64 {
			s := startRedis(t, "everysec")
			defer s.Stop()
			return s.drainIdle(t, p.idle, processes)
		})
	}
	f.idle1, f.idle3 = drain(1), drain(3)
}

// measureHTTP publishes with workers as they are, to an API that answers at once.
func measureHTTP(t testing.TB, p capacityPlan, f *capacityFigures) {
	f.http1 = medianOf(p.rounds, func() float64 { return drainHTTP(t, p.http, 1, f) })
	f.http3 = medianOf(p.rounds, func() float64 { return drainHTTP(t, p.http, 3, nil) })
}

// drainHTTP publishes once. load, if not nil, gets what the worker and Redis needed.
func drainHTTP(t testing.TB, n, processes int, load *capacityFigures) float64 {
	t.Helper()
	s := startRedis(t, "everysec")
	defer s.Stop()
	url, calls := startSink(t)
	before := s.info(t, "memory", "used_memory")
	worker := func() *process {
		p, _ := startWorker(t, s.URL(), url, 1)
		return p
	}
	rate := s.drain(t, n, processes, calls.Load, worker, func(w *process) {
		if load != nil {
			load.workerPeak = max(load.workerPeak, memory(w.cmd.Process.Pid, "VmHWM"))
			load.connectionsBusy = max(load.connectionsBusy, s.connections(t))
		}
	})
	if load != nil { // the workers have ended, and with them their connections' memory
		load.completedJob = (s.info(t, "memory", "used_memory") - before) / float64(n)
	}
	return rate
}

// startSink starts an API that accepts every call at once, and counts them.
func startSink(t testing.TB) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/", calls
}

// measureAOF measures what jobs write into the append-only file.
func measureAOF(t testing.TB, p capacityPlan, f *capacityFigures) {
	s := startRedis(t, "everysec")
	before := s.info(t, "persistence", "aof_current_size")
	s.drainIdle(t, p.aof, 1)
	f.aofOfJob = (s.info(t, "persistence", "aof_current_size") - before) / float64(p.aof)
	s.Stop()
}

// drainIdle publishes n jobs with handlers that do nothing.
func (s *redisServer) drainIdle(t testing.TB, n, processes int) float64 {
	t.Helper()
	return s.drain(t, n, processes, func() int64 { return s.completed(t) },
		func() *process { return startIdle(t, s.Addr(), 1, 1) }, func(*process) {})
}

// drain publishes n jobs by a number of processes and returns the rate in jobs a second. The
// processes find the destination paused and begin together. The rate is measured between a
// quarter and nine tenths of the jobs, while all processes work. drain calls during now and then
// with the first process.
func (s *redisServer) drain(t testing.TB, n, processes int, published func() int64, begin func() *process, during func(*process)) float64 {
	t.Helper()
	must(s.client.PauseDestination(t.Context(), destination))(t)
	s.fill(t, n, usualPayload)
	fleet := make([]*process, processes)
	for i := range fleet {
		fleet[i] = begin()
	}
	must(s.client.ResumeDestination(t.Context(), destination))(t)
	var from, to mark
	polls := 0
	poll(t, "all jobs are published", func() bool {
		done := published()
		now := mark{time.Now(), done}
		if from.done == 0 && done >= int64(n)/4 {
			from = now
		}
		if to.done == 0 && done >= int64(n)*9/10 {
			to = now
		}
		const every = 20 // polls
		if polls++; polls%every == 0 && done > 0 && done < int64(n) {
			during(fleet[0])
		}
		return done >= int64(n)
	})
	poll(t, "all jobs are completed", func() bool { return s.completed(t) >= int64(n) })
	for _, p := range fleet {
		p.stop(t)
	}
	return to.since(from)
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
