package doctor_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// While workers publish and operators act, there is nothing to repair, whenever one
// looks; and nothing is lost or published twice because of the looking.
func TestNothingFoundWhileBusy(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	busy(t, func(_ *patient, r *doctor.Report) {
		if len(r.Findings) > 0 {
			t.Errorf("found in a healthy system: %+v", r.Findings)
		}
	}, nil)
}

// Whatever changes the indexes meanwhile, each job ends, and is published
// once at most.
func TestSabotageWhileBusy(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	var found, repaired atomic.Int32
	busy(t, func(_ *patient, r *doctor.Report) {
		for _, f := range r.Findings {
			found.Add(1)
			if f.Repaired {
				repaired.Add(1)
			}
		}
	}, sabotage)
	t.Logf("%d findings, %d of them repaired", found.Load(), repaired.Load())
	if repaired.Load() == 0 {
		t.Error("nothing was repaired: the test shows nothing")
	}
}

// sabotage takes jobs out of the indexes at random.
func sabotage(p *patient, n int, stop <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		id := "j" + strconv.Itoa(rand.IntN(n))
		for _, queue := range store.DefaultNamespace.Queues(p.dest) {
			p.rdb.LRem(p.ctx, store.PendingKey(queue), 1, id)
			for _, key := range []string{
				store.ScheduledKey(queue), store.RetryKey(queue), store.DueKey(queue), store.ParkedKey(queue, store.StatePaused),
				store.ParkedKey(queue, store.StateWaiting), store.FailedKey(queue), store.CompletedKey(queue),
				store.ExpiryKey(queue), store.BatchKey(queue, "b1"), store.OutboxKey(queue),
			} {
				p.rdb.ZRem(p.ctx, key, id)
			}
		}
	}
}

// busy publishes a few thousand jobs, with operators acting on them and the doctor
// looking all the time, until all have ended.
func busy(t *testing.T, looked func(*patient, *doctor.Report), harm func(p *patient, n int, stop <-chan struct{})) {
	const n = 3000
	p := patientOn(t, redistest.Start(t).Client(t))
	api := newBusyAPI(t)
	for range 2 {
		startPublisher(t, p, api.publish)
	}

	stop := make(chan struct{})
	var others sync.WaitGroup
	var looks atomic.Int32
	others.Go(func() { lookAllTheTime(p, stop, &looks, runs{p}, looked) })
	others.Go(func() {
		s := doctor.NewSweeper(p.rdb, doctor.Options{})
		lookAllTheTime(p, stop, &looks, sweeps{p, s}, looked)
	})
	others.Go(func() { actAtRandom(p, n, stop) })
	if harm != nil {
		others.Go(func() { harm(p, n, stop) })
	}
	for i := 0; i < n; i += 50 {
		specs := make([]*jobs.Spec, 50)
		for k := range specs {
			specs[k] = randomJob(p.dest, i+k)
		}
		results, err := p.client.EnqueueMany(p.ctx, specs)
		p.must(err)
		for _, r := range results {
			if r.Err != nil && !errors.Is(r.Err, jobs.ErrInvalid) { // a parent that was not accepted
				t.Error(r.Err)
			}
		}
	}
	accepted := len(p.rdb.Keys(p.ctx, "asynq:{"+p.queue+"*}:t:*").Val())
	<-time.After(3 * time.Second) // for the actions to meet jobs of all kinds
	close(stop)
	others.Wait()
	if harm != nil {
		p.run(doctor.Options{})
	}

	var last *jobs.DestinationStats
	deadline := time.Now().Add(4 * time.Minute)
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		if _, err := p.client.ActWhere(p.ctx, jobs.ActionResume, jobs.Filter{Statuses: []jobs.Status{jobs.Paused}}); err != nil {
			t.Fatal(err)
		}
		stats, err := p.client.Stats(p.ctx, p.dest)
		p.must(err)
		last = &stats[0]
		if last.Backlog == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all jobs have ended within 4 minutes: %+v; found %+v", last, p.run(doctor.Options{DryRun: true}).Findings)
		}
	}
	total := 0
	for _, count := range last.Counts {
		total += count
	}
	t.Logf("%d looks, %d jobs, at the end %v", looks.Load(), accepted, last.Counts)
	if total != accepted {
		t.Errorf("%d jobs at the end, %d were accepted", total, accepted)
	}
	if found := p.run(doctor.Options{DryRun: true}); len(found.Findings) > 0 || found.Checked < accepted {
		t.Errorf("at the end %d jobs, and wrong: %+v", found.Checked, found.Findings)
	}
	api.check(last.Counts[jobs.Completed])
}

// looker is one way to look.
type looker interface {
	look() (*doctor.Report, error)
}

type runs struct{ p *patient }

func (l runs) look() (*doctor.Report, error) {
	return doctor.Run(l.p.ctx, l.p.rdb, doctor.Options{DryRun: rand.IntN(2) == 0})
}

type sweeps struct {
	p *patient
	s *doctor.Sweeper
}

func (l sweeps) look() (*doctor.Report, error) {
	r, _, err := l.s.Sweep(l.p.ctx, 1+rand.IntN(50))
	return r, err
}

func lookAllTheTime(p *patient, stop <-chan struct{}, looks *atomic.Int32, by looker, looked func(*patient, *doctor.Report)) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		r, err := by.look()
		if err != nil {
			p.t.Error(err)
			return
		}
		looks.Add(1)
		looked(p, r)
	}
}

// busyAPI answers at random, and knows whom it has served.
type busyAPI struct {
	t         *testing.T
	mu        sync.Mutex
	running   map[string]bool
	published map[string]int
}

func newBusyAPI(t *testing.T) *busyAPI {
	return &busyAPI{t: t, running: map[string]bool{}, published: map[string]int{}}
}

func (a *busyAPI) publish(ctx context.Context, j *jobs.Job) error {
	a.mu.Lock()
	if a.running[j.ID] {
		a.t.Errorf("%s runs twice at the same time", j.ID)
	}
	a.running[j.ID] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.running, j.ID)
	}()
	select {
	case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond): // the call
	case <-ctx.Done():
		return ctx.Err()
	}
	switch dice := rand.IntN(20); {
	case dice < 2:
		return jobs.Reschedule(0)
	case dice < 4:
		return jobs.Reschedule(time.Duration(rand.IntN(300)) * time.Millisecond)
	case dice < 5:
		return errors.New("boom")
	case dice < 6:
		return jobs.Discard(errors.New("never"))
	case dice < 7 && rand.IntN(10) == 0:
		return jobs.RateLimited(0)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.published[j.ID]++
	return nil
}

func (a *busyAPI) check(completed int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, times := range a.published {
		if times != 1 {
			a.t.Errorf("%s was published %d times", id, times)
		}
	}
	if len(a.published) != completed {
		a.t.Errorf("%d jobs were published, %d are completed", len(a.published), completed)
	}
}

func startPublisher(t *testing.T, p *patient, f publisher.Func) {
	t.Helper()
	pub, err := publisher.New(p.rdb, publisher.Options{
		Logger: slog.New(slog.DiscardHandler), RetryLoopInterval: 50 * time.Millisecond, ShutdownTimeout: 5 * time.Second,
	})
	if err == nil {
		err = pub.Handle(p.dest, f, publisher.Concurrency(10),
			publisher.Breaker(breaker.Options{FailureThreshold: 3, Cooldown: 100 * time.Millisecond}))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pub.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func randomJob(dest string, i int) *jobs.Spec {
	opts := []jobs.Option{jobs.ID("j" + strconv.Itoa(i))}
	chance := func(percent int) bool { return rand.IntN(100) < percent }
	if chance(20) {
		opts = append(opts, jobs.Batch("b"+strconv.Itoa(rand.IntN(5))))
	}
	if chance(20) {
		opts = append(opts, jobs.TTL(time.Duration(rand.IntN(4000))*time.Millisecond))
	}
	if chance(15) {
		opts = append(opts, jobs.At(time.Now().Add(time.Duration(rand.IntN(2000))*time.Millisecond)))
	}
	if chance(20) && i > 0 {
		opts = append(opts, jobs.After("j"+strconv.Itoa(rand.IntN(i))))
	}
	if chance(30) {
		opts = append(opts, jobs.Retry(jobs.RetryPolicy{MaxRetries: 2, InitialDelay: time.Second, BackoffMultiplier: 1, MaxDelay: time.Second}))
	}
	if chance(20) {
		opts = append(opts, jobs.Prioritize([]jobs.Priority{jobs.PriorityHigh, jobs.PriorityLow}[rand.IntN(2)]))
	}
	return jobs.New(dest, i, opts...)
}

// actAtRandom does random actions on jobs in any state.
func actAtRandom(p *patient, n int, stop <-chan struct{}) {
	actions := []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionResume, jobs.ActionRetry, jobs.ActionExpire}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		ids := make([]string, 1+rand.IntN(10))
		for i := range ids {
			ids[i] = "j" + strconv.Itoa(rand.IntN(n))
		}
		if _, err := p.client.Act(p.ctx, actions[rand.IntN(len(actions))], ids); err != nil {
			p.t.Error(err)
			return
		}
	}
}
