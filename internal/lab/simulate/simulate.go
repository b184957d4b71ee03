// Package simulate plays the jobs of a destination against a model of its API, in virtual time.
//
// The breaker is the real one: its rules, its learner and its scripts, on an embedded Redis whose time is the
// simulation's. Modelled are the API (see [ParseAPI]) and what surrounds the breaker: one queue without keys and
// priorities, the slots of the workers, and what becomes of a job whose call was refused or failed.
package simulate

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/redisconn/embedded"
	"github.com/tidegate/tidegate/jobs"
)

// Start is when simulations begin: a Monday, for windows of a calendar.
var Start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// Options say what is simulated.
type Options struct {
	Breaker  breaker.Options
	Retry    *jobs.RetryPolicy
	Slots    int    // calls that all workers make at once
	API      string // see ParseAPI
	Latency  time.Duration
	Arrivals []time.Duration // of jobs since the start, in order
	ExpireIn time.Duration   // since their arrival; 0 is never
	For      time.Duration
	Seed     uint64
	Steps    int // of the Result; 0 is 240
}

// caller is an API that a simulation calls.
type caller interface {
	// call decides a call at now that ends at end, since after the start.
	call(now, end time.Time, since time.Duration) response
}

// Poisson are the arrivals of about rate jobs.
func Poisson(rate breaker.Rate, during time.Duration, seed uint64) (at []time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it is to be repeatable
	for t := 0.0; ; {
		t += rng.ExpFloat64() * rate.Per.Seconds() / float64(rate.Calls)
		if t >= during.Seconds() {
			return at
		}
		at = append(at, time.Duration(t*float64(time.Second)))
	}
}

// Result of a simulation. Times are in seconds.
type Result struct {
	// Jobs that arrived, and what became of them; Left had not ended at the end.
	Jobs      int `json:"jobs"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	Expired   int `json:"expired"`
	Left      int `json:"left"`
	// Drained is when the last job ended; nil if any is left.
	Drained *float64 `json:"drained_secs"`
	// Calls made; the API refused Wasted of them, and Down failed in an outage.
	Calls  int `json:"calls"`
	Wasted int `json:"wasted"`
	Down   int `json:"down"`
	// Opened is how often the breaker opened.
	Opened int `json:"opened"`
	// Commands that the breaker sent to Redis. Those of the queues are not simulated.
	Commands int `json:"redis_commands"`
	// PerCall are the commands for each call.
	PerCall float64 `json:"redis_commands_per_call"`
	// Waits of completed jobs, from the arrival to the start of the last call.
	P50    float64 `json:"wait_p50_secs"`
	P90    float64 `json:"wait_p90_secs"`
	Max    float64 `json:"wait_max_secs"`
	Step   float64 `json:"step_secs"`
	Points []Point `json:"points"`
}

// Point is one step of a Result; Backlog is the backlog at its end.
type Point struct {
	Accepted int `json:"accepted"`
	Wasted   int `json:"wasted"`
	Backlog  int `json:"backlog"`
}

const points = 240 // of a Result

type job struct {
	id       string
	at       time.Time
	expires  time.Time
	flying   bool
	over     bool
	attempt  int
	streak   int // calls in a row that failed, when this one did
	refusals int
	accepted int // calls of all jobs when it was refused first
}

// sim is a running simulation.
type sim struct {
	Options
	api      caller
	b        *breaker.Breaker
	rng      *rand.Rand
	now      time.Time
	events   events
	order    int
	queue    []*job
	flying   int
	ask      time.Time // when the breaker is to be asked again
	rests    time.Time // until then workers wait for Redis
	denied   uint64    // version of the breaker that denied a call,
	ofSlots  bool      // for which there was no slot
	accepted int
	backlog  int
	coming   int // jobs that have not arrived
	waits    []time.Duration
	out      Result
	step     time.Duration
	incident string
	err      error
}

// Run runs a simulation until all jobs have ended, or its time is over.
func Run(ctx context.Context, o Options) (Result, error) {
	api, err := ParseAPI(o.API)
	if err != nil {
		return Result{}, fmt.Errorf("simulate: API: %w", err)
	}
	server, err := embedded.Start()
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	defer func() { _ = server.Close() }()
	to, err := redis.ParseURL(server.URL())
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	to.ContextTimeoutEnabled, to.MaxRetries, to.PoolSize = true, -1, 1
	rdb := redis.NewClient(to)
	defer func() { _ = rdb.Close() }()
	return play(ctx, o, api, rdb)
}

// play plays the jobs against an API. Redis has no data of the breaker yet.
func play(ctx context.Context, o Options, api caller, rdb redis.UniversalClient) (Result, error) {
	var err error
	s := &sim{
		Options: o, api: api, now: Start, rng: rand.New(rand.NewPCG(o.Seed, 0)), //nolint:gosec // it is to be repeatable
		coming: len(o.Arrivals), step: max(time.Second, (o.For / time.Duration(cmp.Or(o.Steps, points))).Round(time.Second)),
	}
	s.Breaker.MaxInFlight, s.Breaker.Instance, s.Breaker.Destination = o.Slots, "simulation", "simulated"
	if s.b, err = breaker.NewVirtual(ctx, rdb, s.Breaker, func() time.Time { return s.now }, s.rng.Float64); err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	defer func() { _ = s.b.Close() }()
	rdb.AddHook(commands{&s.out.Commands})
	if err := s.run(ctx); err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	return s.result(), nil
}

func (s *sim) run(ctx context.Context) error {
	s.arrives()
	for end := Start.Add(s.For); s.coming+s.backlog > 0 && s.err == nil && ctx.Err() == nil && len(s.events) > 0; {
		e := heap.Pop(&s.events).(event) //nolint:forcetypeassert // there are no others
		if e.at.After(end) {
			s.record(end)
			break
		}
		s.record(e.at)
		e.do()
		if err := s.fill(ctx); err != nil {
			return err
		}
		if now := s.b.View().Incident; now != s.incident {
			if s.incident = now; now != "" {
				s.out.Opened++
			}
		}
	}
	return errors.Join(s.err, ctx.Err())
}

// at has do called at an instant.
func (s *sim) at(t time.Time, do func()) {
	s.order++
	heap.Push(&s.events, event{t, s.order, do})
}

// record advances the clock.
func (s *sim) record(to time.Time) {
	for n := int(to.Sub(Start) / s.step); len(s.out.Points) <= n; {
		if last := len(s.out.Points) - 1; last >= 0 {
			s.out.Points[last].Backlog = s.backlog
		}
		s.out.Points = append(s.out.Points, Point{})
	}
	s.now = to
}

func (s *sim) point() *Point { return &s.out.Points[len(s.out.Points)-1] }

// arrives has the next job arrive, and the others after it.
func (s *sim) arrives() {
	if next := len(s.Arrivals) - s.coming; s.coming > 0 {
		s.at(Start.Add(s.Arrivals[next]), func() {
			s.coming--
			s.arrive(&job{id: strconv.Itoa(next), at: s.now})
			s.arrives()
		})
	}
}

func (s *sim) arrive(j *job) {
	s.backlog++
	s.out.Jobs++
	if s.ExpireIn > 0 {
		j.expires = j.at.Add(s.ExpireIn)
		s.at(j.expires, func() { s.expire(j) })
	}
	s.queue = append(s.queue, j)
}

// expire ends a job that waits.
func (s *sim) expire(j *job) {
	if !j.over && !j.flying && !j.expires.IsZero() && !s.now.Before(j.expires) {
		s.end(j, &s.out.Expired)
	}
}

func (s *sim) end(j *job, count *int) {
	j.over = true
	s.backlog--
	*count++
}

// fill starts calls while there are slots and jobs, and the breaker permits it: as publisher's gate does.
func (s *sim) fill(ctx context.Context) error {
	for s.flying < s.Slots && !s.now.Before(s.ask) && !s.now.Before(s.rests) {
		for len(s.queue) > 0 {
			if s.expire(s.queue[0]); !s.queue[0].over {
				break
			}
			s.queue = s.queue[1:]
		}
		if len(s.queue) == 0 {
			return nil
		}
		p, err := s.b.Allow(ctx)
		if open, refused := errors.AsType[*breaker.OpenError](err); refused {
			s.denied, s.ofSlots = s.b.View().Version, open.Cause == breaker.CauseConcurrency
			s.ask = s.now.Add(max(time.Millisecond, open.RetryAfter))
			s.at(s.ask, func() {})
			return nil
		} else if err != nil {
			return err //nolint:wrapcheck // Run does
		}
		if p.Metered() {
			s.rest(trip / 3)
		}
		j := s.queue[0]
		s.queue = s.queue[1:]
		s.begin(ctx, p, j)
	}
	return nil
}

// trip is what a worker takes to report a call that Redis counts, before it asks for the next one: refusals that come
// meanwhile are seen first. Several workers ask at once.
const trip = time.Millisecond

// rest has no call begin for a time.
func (s *sim) rest(d time.Duration) {
	s.rests = s.now.Add(d)
	s.at(s.rests, func() {})
}

func (s *sim) begin(ctx context.Context, p breaker.Permit, j *job) {
	s.flying++
	s.out.Calls++
	j.flying = true
	began, end := s.now, s.now.Add(s.Latency)
	r := s.api.call(began, end, began.Sub(Start))
	s.at(end, func() { s.ended(ctx, p, j, began, r) })
}

// ended reports a call, and decides what becomes of its job: as package publisher does.
func (s *sim) ended(ctx context.Context, p breaker.Permit, j *job, began time.Time, r response) {
	s.flying--
	j.flying = false
	if p.Metered() && !s.now.Before(s.rests) {
		s.rest(trip)
	}
	o := breaker.Answered(r.status).WithJob(j.id)
	if r.status == http.StatusTooManyRequests {
		if o = breaker.RateLimited(r.hint).WithJob(j.id); j.refusals > 0 && s.accepted > j.accepted {
			o = o.WithDoubt()
		}
	}
	if r.budget != nil {
		o = o.WithBudget(*r.budget)
	}
	status, err := p.Report(ctx, o)
	if err != nil {
		s.err = err
		return
	}
	if s.ofSlots || s.b.View().Version != s.denied {
		s.ask = time.Time{}
	}
	switch r.status {
	case http.StatusOK:
		s.accepted++
		s.point().Accepted++
		s.waits = append(s.waits, began.Sub(j.at))
		s.end(j, &s.out.Completed)
	case http.StatusTooManyRequests:
		s.out.Wasted++
		s.point().Wasted++
		if j.refusals++; j.refusals == 1 {
			j.accepted = s.accepted
		}
		s.refused(j, r.hint, &status)
	default:
		s.out.Down++
		s.failed(j, p, &status, true)
	}
}

// refused has a job wait for the end of the breaker's cooldown, or for the hint.
func (s *sim) refused(j *job, hint time.Duration, status *breaker.Status) {
	if status.State == breaker.Closed {
		if hint == 0 || s.Breaker.IgnoreHints {
			hint = time.Second
		}
		s.requeue(j, s.now.Add(hint))
		return
	}
	until := later(s.now, status.OpenUntil)
	if wait := min(until.Sub(s.now), 5*time.Second); s.backlog > 1 { // another job makes the next call
		until = until.Add(wait/10 + time.Duration(s.rng.Float64()*float64(wait/10)))
	}
	s.requeue(j, until)
}

// undecided is how long a failed call waits for the next ones, which show an outage.
const undecided = 2 * time.Second

// failed has a job wait for the end of an outage, or retries it by its policy.
func (s *sim) failed(j *job, p breaker.Permit, status *breaker.Status, wait bool) {
	switch {
	case status.State != breaker.Closed && status.IncidentCause == breaker.CauseOutage || status.OutageID > p.Generation():
		until := later(s.now, status.OpenUntil)
		if p.Probe() { // another job probes next
			until = until.Add(min(s.Breaker.Cooldown, time.Second))
		}
		s.requeue(j, until)
	case status.RecoversFromOutage:
		s.requeue(j, s.now.Add(s.Breaker.Cooldown))
	case wait || status.Streak > j.streak:
		j.streak = status.Streak
		j.flying = true // it does not expire meanwhile
		s.at(s.now.Add(undecided+s.Latency), func() {
			j.flying = false
			v := s.b.View()
			s.failed(j, p, &v.Status, false)
		})
	case !s.Retry.Retries(j.attempt, jobs.OnFailure):
		s.end(j, &s.out.Failed)
	default:
		s.requeue(j, s.now.Add(s.Retry.DelayWith(j.attempt, s.rng.Float64())))
		j.attempt++
	}
}

func later(now, t time.Time) time.Time {
	if !t.After(now) {
		return now.Add(time.Second)
	}
	return t
}

// requeue puts a job behind the others at an instant.
func (s *sim) requeue(j *job, at time.Time) {
	s.expire(j)
	s.at(at, func() {
		if !j.over {
			s.queue = append(s.queue, j)
		}
	})
}

func (s *sim) result() Result {
	out := s.out
	out.PerCall = math.Round(100*float64(out.Commands)/float64(max(1, out.Calls))) / 100
	if len(out.Points) > 0 {
		out.Points[len(out.Points)-1].Backlog = s.backlog
	}
	if out.Left = s.backlog + s.coming; out.Left == 0 {
		drained := s.now.Sub(Start).Seconds()
		out.Drained = &drained
	}
	out.Step = s.step.Seconds()
	slices.Sort(s.waits)
	quantile := func(part float64) float64 {
		if len(s.waits) == 0 {
			return 0
		}
		return s.waits[int(part*float64(len(s.waits)-1))].Seconds()
	}
	out.P50, out.P90, out.Max = quantile(.5), quantile(.9), quantile(1)
	return out
}

// commands counts what goes to Redis.
type commands struct{ n *int }

func (c commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*c.n++
		return next(ctx, cmd)
	}
}

func (c commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		*c.n += len(cmds)
		return next(ctx, cmds)
	}
}

// event is something that happens at an instant; order sorts events at the same instant.
type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) } //nolint:forcetypeassert // there are no others
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
