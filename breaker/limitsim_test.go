//go:build !race

package breaker

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/quota"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// A simulation plays one run of a model in virtual time: callers of several instances, their
// Breakers and the scripts in Redis are the real ones, the API is a quota.Limiter, and clock,
// latencies and demand are simulated (docs/adr/0040). It depends on its seed alone.
type simulation struct {
	t         testing.TB
	model     quota.Model
	limiter   quota.Limiter
	rng       *rand.Rand
	run       quota.Run
	now       time.Duration // since the Unix epoch
	skew      time.Duration // of Redis's clock
	events    eventQueue
	sequence  int             // of the last event
	instances []*simInstance  // none: an oracle that knows the limit makes the calls
	published uint64          // version that all instances have been sent
	jobs      []time.Duration // when the jobs that wait arrived, with a Demand
	wakeAt    time.Duration   // of the oracle
	calls     int             // of the oracle in flight
	hints     time.Duration   // resolution of the hints of refusals; 0: none
	waiting   time.Duration   // since when a call could have started but for the limit

	simResult
}

// simResult is what came of a run.
type simResult struct {
	accepted, refused []int           // by window
	delays            []time.Duration // of the jobs of a Demand, from their arrival until they were accepted
	longest           time.Duration   // for which no call was made although there was a job and a caller
	asked             int             // scripts, for the instances' calls
}

// simInstance is one instance with its callers.
type simInstance struct {
	*Breaker
	callers, calls int // at most, and in flight
	// A refusal: until retryAt, or until the view is another than seen, asking is of no use.
	seen    *view
	retryAt time.Duration
}

const (
	simInstances = 3
	// simMessage is how long a published message takes at least, and at most twice as long.
	simMessage = 500 * time.Microsecond
)

// simulate plays a run. With hints refused calls say when the limiter accepts calls again. Without options there is no breaker, and no call is wasted.
func simulate(t testing.TB, rdb redis.UniversalClient, m quota.Model, o *Options, seed uint64, hints ...time.Duration) simResult {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	start := 1_700_000_000*time.Second + time.Duration(rng.Int64N(int64(7*24*time.Hour))).Truncate(time.Microsecond)
	s := &simulation{
		t: t, model: m, rng: rng, now: start, waiting: start,
		run: quota.Run{
			Start: start, End: start + time.Duration(m.Windows)*m.Window,
			Rand: rand.New(rand.NewPCG(seed, 2)),
		},
	}
	s.limiter = m.New(s.run)
	s.hints = append(hints, 0)[0]
	s.accepted, s.refused = make([]int, m.Windows), make([]int, m.Windows)
	if o != nil {
		s.join(rdb, *o)
	}
	if m.Demand != nil {
		s.demand(rand.New(rand.NewPCG(seed, 3)))
	}
	s.dispatch()
	s.until(s.run.End, s.dispatch)
	s.noteWait()
	for _, in := range s.instances {
		_ = in.Close()
	}
	return s.simResult
}

// join makes the instances of a breaker that was never used.
func (s *simulation) join(rdb redis.UniversalClient, o Options) {
	o.Destination = redistest.Name(s.t, "sim")
	at := placeOf(o.Destination, "")
	registered := map[string]any{}
	for i := range simInstances {
		callers := (s.model.Callers + i) / simInstances
		o.Instance, o.MaxInFlight = "worker-"+string(rune('1'+i)), max(1, callers)
		b, err := newTestBreaker(rdb, o, clock{
			now:   func() time.Time { return time.UnixMicro(s.now.Microseconds()) },
			redis: func() string { s.asked++; return strconv.FormatInt(s.redisNow(), 10) },
		})
		if err != nil {
			s.t.Fatal(err)
		}
		s.instances = append(s.instances, &simInstance{Breaker: b, callers: callers})
		b.enrolledAs.Store(int64(callers))
		registered[b.id] = fmt.Sprint(callers, s.run.End.Milliseconds()+1)
	}
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	check(rdb.HSet(ctx, at.instances(), registered).Err())
	check(rdb.HSet(ctx, at.keys[1], ":capacity", s.model.Callers).Err())
	for _, in := range s.instances {
		check(in.readSnapshot(ctx))
	}
	s.t.Cleanup(func() { rdb.Del(context.Background(), at.keys...) })
}

// redisNow is Redis's clock, µs.
func (s *simulation) redisNow() int64 { return (s.now + s.skew).Microseconds() }

func (s *simulation) demand(rng *rand.Rand) {
	at, n := s.model.Demand(s.now, rng)
	s.at(at, func() {
		for range n {
			s.jobs = append(s.jobs, s.now)
		}
		s.demand(rng)
	})
}

// until lets time pass, and calls then after each event.
func (s *simulation) until(end time.Duration, then func()) {
	for len(s.events) > 0 && s.events[0].at < end {
		e := heap.Pop(&s.events).(*event)
		s.now = e.at
		e.do()
		then()
	}
	s.now = end
}

// dispatch starts the calls that can start now.
func (s *simulation) dispatch() {
	if s.instances == nil {
		s.dispatchOracle()
		return
	}
	for started := true; started; {
		started = false
		for _, in := range s.instances {
			if in.calls < in.callers && s.anyJob() && s.allow(in) {
				started = true
			}
		}
	}
}

func (s *simulation) anyJob() bool { return s.model.Demand == nil || len(s.jobs) > 0 }

// allow asks for a permit for one call as Breaker.Wait does, and starts it.
func (s *simulation) allow(in *simInstance) bool {
	seen := in.view.Load()
	if s.now < in.retryAt && seen == in.seen {
		return false
	}
	permit, err := in.Allow(context.Background())
	s.publish(in)
	if refusal, ok := errors.AsType[*OpenError](err); ok {
		in.seen, in.retryAt = seen, s.now+roundUp(refusal.RetryAfter)
		s.at(in.retryAt, func() {})
		return false
	}
	if err != nil {
		s.t.Fatalf("%s: %v", s.model.Name, err)
	}
	in.retryAt = 0
	in.calls++
	s.start(func(o Outcome) {
		in.calls--
		if _, err := permit.Report(context.Background(), o); err != nil {
			s.t.Fatalf("%s: %v", s.model.Name, err)
		}
		s.publish(in)
	})
	return true
}

// publish sends the others what the instance has just learned from Redis, as Redis would.
func (s *simulation) publish(from *simInstance) {
	if from.joins.any() {
		from.sendJoins(context.Background())
	}
	v := from.view.Load()
	if v.version <= s.published {
		return
	}
	s.published = v.version
	o := observation{version: v.version, now: s.redisNow(), record: v.record}
	for _, in := range s.instances {
		if in == from {
			continue
		}
		s.at(s.now+simMessage+time.Duration(s.rng.Int64N(int64(simMessage))).Truncate(time.Microsecond), func() {
			o.received = in.clock.now()
			in.raise(o.version, o.received)
			in.observe("", o)
			s.publish(in) // the calls that it joins
		})
	}
}

// dispatchOracle makes each call when the limit allows it, and not before.
func (s *simulation) dispatchOracle() {
	for s.calls < s.model.Callers && s.anyJob() {
		if next := s.limiter.Next(s.now); next > s.now {
			if s.wakeAt <= s.now || next < s.wakeAt {
				s.wakeAt = next
				s.at(next, func() {})
			}
			return
		}
		s.calls++
		s.start(func(Outcome) { s.calls-- })
	}
}

// start makes a call, and reports its outcome when it is over.
func (s *simulation) start(report func(Outcome)) {
	s.noteWait()
	var job time.Duration
	if s.model.Demand != nil {
		job, s.jobs = s.jobs[0], s.jobs[1:]
	}
	sent, fails := s.now, s.rng.Float64() < s.model.Failing
	took := (s.model.Fastest + time.Duration(s.rng.Float64()*float64(s.model.Slowest-s.model.Fastest))).Truncate(time.Microsecond)
	decides := sent + time.Duration(float64(took)*s.model.Decides).Truncate(time.Microsecond)
	if s.instances == nil {
		decides = sent // or two calls could overtake each other
	}
	again := func() {
		if s.model.Demand != nil {
			s.jobs = append([]time.Duration{job}, s.jobs...)
		}
	}
	decide := func() {
		end := sent + took
		if fails {
			s.at(end, func() { again(); report(NoAnswer()) })
			return
		}
		accepted := s.limiter.Take(s.now, end)
		s.count(accepted, job)
		if !accepted {
			end = min(end, 2*s.now-sent)
			var hint time.Duration
			if s.hints > 0 { // of a limit of calls at once the least
				hint = max(s.limiter.Next(s.now)-s.now, time.Microsecond)
				hint = (hint + s.hints - 1).Truncate(s.hints)
			}
			s.at(end, func() { again(); report(RateLimited(hint)) })
			return
		}
		if d, ok := s.limiter.(quota.Delayer); ok {
			end += d.Delay()
		}
		s.at(end, func() { report(Success()) })
	}
	if decides == s.now {
		decide()
	} else {
		s.at(decides, decide)
	}
}

func (s *simulation) count(accepted bool, job time.Duration) {
	window := int((s.now - s.run.Start) / s.model.Window)
	switch {
	case window >= s.model.Windows:
	case !accepted:
		s.refused[window]++
	default:
		s.accepted[window]++
		if s.model.Demand != nil {
			s.delays = append(s.delays, s.now-job)
		}
	}
}

// noteWait notes how long there was no call.
func (s *simulation) noteWait() {
	since := s.waiting
	if s.model.Demand != nil && len(s.jobs) > 0 {
		since = max(since, s.jobs[0])
	}
	if s.anyJob() {
		s.longest = max(s.longest, s.now-since)
	}
	s.waiting = s.now
}

func (s *simulation) at(at time.Duration, do func()) {
	s.sequence++
	heap.Push(&s.events, &event{at: at, n: s.sequence, do: do})
}

// event is something that happens at an instant; those of one instant in their order.
type event struct {
	at time.Duration
	n  int
	do func()
}

// eventQueue is a heap.
type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }

func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(*event)) }

func (q *eventQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}

// roundUp returns d in whole microseconds, the resolution of the simulation.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
