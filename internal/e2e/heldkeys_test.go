package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// enqueueSpecs enqueues jobs in their order and returns their ids.
func (f *fleet) enqueueSpecs(specs []*jobs.Spec) []string {
	f.t.Helper()
	var ids []string
	for some := range slices.Chunk(specs, 10_000) {
		results, err := f.client.EnqueueMany(context.Background(), some)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				f.t.Fatal(r.Err)
			}
			ids = append(ids, r.Job.ID)
		}
	}
	return ids
}

// 100,000 jobs of a key that is OPEN stand before and among those of another key and
// of none: they keep nobody waiting, are handed to no handler, and do not keep Redis
// from other clients. When the key closes they come back in portions and in order. It keeps the machine busy, so it
// runs before the tests that hold instants to milliseconds.
func TestBacklogOfOpenKeyHoldsUpNobody(t *testing.T) {
	const (
		open, others = 100_000, 1_000
		within       = 15 * time.Second
		answer       = 20 * time.Millisecond // of Redis, to other clients
		looked       = 400                   // jobs whose order is looked at
	)
	server := redistest.Start(t, redistest.WithArgs("--slowlog-log-slower-than", strconv.FormatInt(answer.Microseconds(), 10)))
	f := newFleet(t, server, fakeapi.Options{Latency: 10 * time.Millisecond, Light: true})
	favoured := favour(t, f.server.PID())
	f.trip(0, "limited")
	var specs []*jobs.Spec
	ours := map[int]bool{}
	for i := range open {
		specs = append(specs, jobs.New(f.dest, i, jobs.Key("limited"), jobs.Path("/limited")))
		if i >= open/2 && i%(open/2/others) == 0 {
			ours[len(specs)] = true
			if i%2 == 0 && i%100 == 0 {
				specs = append(specs, jobs.New(f.dest, i))
			} else {
				specs = append(specs, jobs.New(f.dest, i, jobs.Key("free")))
			}
		}
	}
	ids := f.enqueueSpecs(specs)
	var limited, free []string
	for i, id := range ids {
		if ours[i] {
			free = append(free, id)
		} else {
			limited = append(limited, id)
		}
	}
	if len(limited) != open || len(free) != others {
		t.Fatalf("%d and %d jobs", len(limited), len(free))
	}
	replies := startPinger(f)
	started := time.Now()
	f.start()
	f.waitAccepted(others, within+20*time.Second)
	took := time.Since(started)
	if took > within {
		t.Errorf("the others' %d jobs took %s, want at most %s", others, took, within)
	}
	f.waitCompleted(free, 5*time.Second)
	p99, slowest := replies.finish()
	if favoured && slowest > answer {
		t.Errorf("the slowest reply of Redis took %s, want at most %s", slowest, answer)
	}
	logs, err := f.rdb.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logs {
		t.Errorf("a command took Redis %s: %.100q", l.Duration, l.Args[:min(5, len(l.Args))])
	}
	if n := len(limitedCalls(f)); n != 0 {
		t.Errorf("%d calls of the key that is OPEN", n)
	}
	t.Logf("%d jobs among %d held ones took %s; Redis answered within %s (99 of 100) and %s", others, open, took, p99, slowest)

	if _, err := breaker.Reset(t.Context(), f.rdb, f.dest+"/limited", "test"); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	f.waitAccepted(others+looked, 30*time.Second)
	calls := limitedCalls(f)
	t.Logf("the first held job came %s after the reset, %d within %s", calls[0].At.Sub(closed), looked, time.Since(closed))
	checkPortions(t, calls[:looked], 10, 0)
	place := map[string]int{}
	for i, id := range limited[:looked+1000] {
		place[id] = i
	}
	for i, r := range calls[:looked] {
		// Calls in flight together overtake each other on their way.
		if at, known := place[r.Key]; !known || at < i-10 || at > i+10 {
			t.Errorf("call %d is job %d of its key", i, at)
		}
	}
	for _, id := range limited[:looked/2] {
		if j := f.job(id); j.RescheduleCount != 0 || j.Attempt != 0 {
			t.Errorf("job %s was put off %d times and retried %d times", id, j.RescheduleCount, j.Attempt)
		}
	}
}

func limitedCalls(f *fleet) []fakeapi.Receipt {
	return slices.DeleteFunc(f.api.Receipts(), func(r fakeapi.Receipt) bool { return r.Path != "/limited" })
}

// checkPortions checks that calls begin as a slow start lets them.
func checkPortions(t *testing.T, calls []fakeapi.Receipt, most, probes int) {
	t.Helper()
	for i, r := range calls {
		flying, succeeded := 1, -probes
		for _, before := range calls[:i] {
			if before.Done.IsZero() || before.Done.After(r.At) {
				flying++
			} else {
				succeeded++
			}
		}
		allowed := 1
		if succeeded >= 0 {
			allowed = slowStart(succeeded, most)
		}
		if flying > allowed {
			t.Errorf("call %d makes %d in flight after %d successes; %d are allowed", i+1, flying, succeeded, allowed)
		}
	}
}

// Of many keys some are limited: the others flow as if there were none, and only the
// limited ones take room in Redis.
func TestManyKeysAndSomeLimited(t *testing.T) {
	t.Parallel()
	keys := 2_000
	if long {
		keys = 10_000
	}
	const each, every = 2, 33
	f := newFleet(t, redistest.Start(t), fakeapi.Options{Latency: 2 * time.Millisecond, Light: true})
	f.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		if strings.HasPrefix(r.URL.Path, "/limited") {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"600"}}}
		}
		return nil
	})
	var specs []*jobs.Spec
	limited := 0
	for round := range each {
		for i := range keys {
			path := "/free"
			if i%every == 0 {
				path = fmt.Sprintf("/limited/%d", i)
				limited += 1 - min(1, round)
			}
			specs = append(specs, jobs.New(f.dest, i, jobs.Key("user"+strconv.Itoa(i)), jobs.Path(path)))
		}
	}
	f.enqueueSpecs(specs)
	started := time.Now()
	f.start()
	f.start()
	f.waitAccepted((keys-limited)*each, time.Minute)
	took := time.Since(started)
	calls := map[string]int{}
	for _, r := range f.api.Receipts() {
		if r.Status == http.StatusTooManyRequests {
			calls[r.Path]++
		}
	}
	for path, n := range calls {
		if n != 1 {
			t.Errorf("%s was called %d times; its first answer told of ten minutes", path, n)
		}
	}
	if len(calls) != limited {
		t.Errorf("%d keys were limited, want %d", len(calls), limited)
	}
	if s := f.state(); s != breaker.Closed {
		t.Errorf("the destination is %s", s)
	}
	all, err := breaker.List(t.Context(), f.rdb, f.dest)
	if err != nil || len(all) != 1+limited {
		t.Errorf("%d breakers are listed, want the destination's and %d keys' (%v)", len(all), limited, err)
	}
	if n := len(f.breakerKeys()); n > 20+3*limited {
		t.Errorf("the breakers have %d keys in Redis", n)
	}
	redistest.Await(t, 2*time.Minute, "only the limited keys' jobs are left", func() bool {
		counts := f.stats(f.dest)[0].Counts
		return counts[jobs.Completed] == (keys-limited)*each && counts[jobs.Pending] == limited*each
	})
	t.Logf("%d jobs of %d keys took %s, %d keys are limited", len(specs), keys, took, limited)
}
