package bench

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// subscribed is what subscribers of events cost Redis.
type subscribed struct {
	subscribers int
	quiet, busy float64 // commands a second while nothing happens, and while jobs are cancelled
	received    float64 // the least share of the events that a subscriber has received
}

// cancelsPerSecond is how many jobs a second are enqueued and cancelled while it is busy.
const cancelsPerSecond = 50

// subscribed measures Redis's commands a second while a number of subscribers listens.
func (s *apiServer) subscribed(t testing.TB, subscribers int, length time.Duration) subscribed {
	t.Helper()
	c := subscribed{subscribers: subscribers, received: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	received := make([]atomic.Int64, subscribers)
	for i := range received {
		s.subscribe(ctx, t, &listening, &received[i])
	}
	pause(ctx, 2*time.Second) // until the feed has begun, or ended
	c.quiet = s.commandsPerSecond(t, func() { pause(ctx, length) })
	before := make([]int64, subscribers)
	for i := range received {
		before[i] = received[i].Load()
	}
	total := 0
	c.busy = s.commandsPerSecond(t, func() { total = s.cancelJobs(t, length) })
	pause(ctx, 2*time.Second) // until the last ones have come
	for i := range received {
		c.received = min(c.received, float64(received[i].Load()-before[i])/float64(total))
	}
	return c
}

// subscribe counts the events of jobs that are received until ctx ends.
func (s *apiServer) subscribe(ctx context.Context, t testing.TB, listening *sync.WaitGroup, received *atomic.Int64) {
	t.Helper()
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events?type=job", nil))(t)
	answer := must(s.http.Do(r))(t)
	listening.Go(func() {
		defer func() { _ = answer.Body.Close() }()
		for in := bufio.NewScanner(answer.Body); in.Scan(); {
			if bytes.HasPrefix(in.Bytes(), []byte("event: job.")) {
				received.Add(1)
			}
		}
	})
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("subscribe: %s", answer.Status)
	}
}

// cancelJobs enqueues and cancels jobs at an even pace, and returns how many.
func (s *apiServer) cancelJobs(t testing.TB, length time.Duration) (n int) {
	t.Helper()
	tick := time.NewTicker(time.Second / cancelsPerSecond)
	defer tick.Stop()
	for started := time.Now(); time.Since(started) < length; n++ {
		job := must(s.client.Enqueue(t.Context(), jobs.New(destination, payload(usualPayload))))(t)
		check(t, s.client.Cancel(t.Context(), job.ID))
		<-tick.C
	}
	return n
}

// commandsPerSecond returns how many commands Redis runs a second during do, the commands
// inside scripts included.
func (s *apiServer) commandsPerSecond(t testing.TB, do func()) float64 {
	t.Helper()
	before, started := s.info(t, "stats", "total_commands_processed"), time.Now()
	do()
	elapsed := time.Since(started)
	return (s.info(t, "stats", "total_commands_processed") - before - 1) / elapsed.Seconds()
}
