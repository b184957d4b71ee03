package simulate

import (
	"container/heap"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

var (
	keysAll   = flag.Bool("keys.all", false, "TestKeys: play all models, also those without bounds")
	keysSeeds = flag.Uint64("keys.seeds", 1, "TestKeys: play each model so often")
)

// keyedModel is an API whose limits are each key's, everyone's, or both.
type keyedModel struct {
	name   string
	phases []keyedPhase
	hints  bool
	keys   int
	zipf   float64       // exponent of the jobs of a key; 0: as many of each
	hot    float64       // part of the jobs that the first key has
	rate   time.Duration // from one arrival to the next; 0: 3,000 jobs wait at the start
	shed   float64       // part of the calls that is refused at random

	accepted float64 // bounds: at least, to the oracle's,
	refused  int     // at most,
	others   float64 // s, of the 95th percentile of the waits of other keys than the hot one
}

// keyedPhase is what holds from an instant: limits of all, of each key, and of each group of ten keys.
type keyedPhase struct {
	from             time.Duration
	all, each, group string
}

func keyedModels() []keyedModel {
	const s, m = time.Second, time.Minute
	all := func(api string) []keyedPhase { return []keyedPhase{{all: api}} }
	each := func(api string) []keyedPhase { return []keyedPhase{{each: api}} }
	return []keyedModel{
		{name: "50/10s shared", phases: all("window:50/10s"), keys: 300, accepted: .9, refused: 130},
		{name: "50/10s shared, hints", phases: all("window:50/10s"), hints: true, keys: 300, accepted: .9, refused: 130},
		{name: "20/1m each, Zipf", phases: each("window:20/1m"), keys: 300, zipf: 1, accepted: .94, refused: 205},
		{name: "20/1m each, Zipf, hints", phases: each("window:20/1m"), hints: true, keys: 300, zipf: 1, accepted: .94, refused: 125},
		{name: "both", phases: []keyedPhase{{all: "window:150/10s", each: "window:20/1m"}}, keys: 300, zipf: 1},
		{name: "both, hints", phases: []keyedPhase{{all: "window:150/10s", each: "window:20/1m"}}, hints: true, keys: 300, zipf: 1, accepted: .93, refused: 190},
		{name: "shared, then each", phases: []keyedPhase{{all: "window:50/10s"}, {from: 2 * m, each: "window:20/1m"}}, keys: 300, zipf: 1},
		{name: "shared, then each, hints", phases: []keyedPhase{{all: "window:50/10s"}, {from: 2 * m, each: "window:20/1m"}}, hints: true, keys: 300, zipf: 1, accepted: .65, refused: 120},
		{name: "each, then shared", phases: []keyedPhase{{each: "window:20/1m"}, {from: 2 * m, all: "window:50/10s"}}, keys: 300, zipf: 1},
		{name: "each, then shared, hints", phases: []keyedPhase{{each: "window:20/1m"}, {from: 2 * m, all: "window:50/10s"}}, hints: true, keys: 300, zipf: 1, accepted: .8, refused: 150},
		{name: "a hot key", phases: each("window:20/1m"), keys: 100, hot: .5, rate: s / 12},
		{name: "a hot key, hints", phases: each("window:20/1m"), hints: true, keys: 100, hot: .5, rate: s / 12, accepted: .97, refused: 12, others: 1},
		{name: "a hot key, 3 keys", phases: each("window:20/1m"), keys: 3, hot: .8, rate: s / 2},
		{name: "3 keys share", phases: all("window:50/10s"), keys: 3},
		{name: "3 keys share, hints", phases: all("window:50/10s"), hints: true, keys: 3},
		{name: "20 keys, 5/1m each, in turn", phases: each("window:5/1m"), keys: 20},
		{name: "20 keys, 5/1m each, in turn, hints", phases: each("window:5/1m"), hints: true, keys: 20},
		{name: "sliding 20/1m each", phases: each("sliding:20/1m"), keys: 300, zipf: 1},
		{name: "bucket 300/1m:20 shared", phases: all("bucket:300/1m:20"), keys: 300},
		{name: "5 at once shared", phases: all("concurrency:5"), keys: 300},
		{name: "100/1m shared", phases: all("window:100/1m"), keys: 300},
		{name: "100/1m shared, hints", phases: all("window:100/1m"), hints: true, keys: 300},
		{name: "groups of 10, 20/10s", phases: []keyedPhase{{group: "window:20/10s"}}, keys: 300, zipf: .5},
		{name: "groups of 10, 20/10s, hints", phases: []keyedPhase{{group: "window:20/10s"}}, hints: true, keys: 300, zipf: .5},
		{name: "2 % at random", phases: all("concurrency:1000"), keys: 300, shed: .02},
		{name: "20 % at random", phases: all("concurrency:1000"), keys: 300, shed: .2},
	}
}

const (
	keyedFor   = 250 * time.Second
	keyedSlots = 30
)

// keyedAPI decides the calls.
type keyedAPI struct {
	keyedModel
	rng    *rand.Rand
	limits map[string][]limit
}

func (a *keyedAPI) of(key int, since time.Duration) (all []limit) {
	p := a.phases[0]
	for _, next := range a.phases {
		if since >= next.from {
			p = next
		}
	}
	for _, part := range [][2]string{{p.all, "all"}, {p.each, fmt.Sprint("key ", key)}, {p.group, fmt.Sprint("group ", key/10)}} {
		if part[0] == "" {
			continue
		}
		id := part[0] + " of " + part[1]
		if a.limits[id] == nil {
			api, err := ParseAPI(part[0])
			if err != nil {
				panic(err)
			}
			a.limits[id] = api.limits
		}
		all = append(all, a.limits[id]...)
	}
	return all
}

// wait is how long no call of a key is accepted.
func (a *keyedAPI) wait(key int, now time.Time) (wait time.Duration) {
	for _, l := range a.of(key, now.Sub(Start)) {
		wait = max(wait, l.wait(now))
	}
	return wait
}

func (a *keyedAPI) call(key int, now, end time.Time) (ok bool, hint time.Duration) {
	if wait := a.wait(key, now); wait > 0 || a.rng.Float64() < a.shed {
		if !a.hints {
			wait = 0
		}
		return false, wholeSeconds(wait)
	}
	for _, l := range a.of(key, now.Sub(Start)) {
		l.take(now, end)
	}
	return true, 0
}

// keyedSim plays the jobs of keys as workers do: when a key is refused, its jobs wait in their order.
type keyedSim struct {
	api    *keyedAPI
	b      *breaker.Breaker // nil: an oracle
	rng    *rand.Rand
	now    time.Time
	events events
	order  int

	pending []*keyedJob
	held    map[int][]*keyedJob
	until   map[int]time.Time
	flying  int
	ask     time.Time
	version uint64

	accepted, refused, opened int
	idle, last                time.Duration // the longest time without an accepted call
	waits, others             []float64
	incident                  string
}

type keyedJob struct {
	id, key int
	at      time.Duration
}

func (s *keyedSim) at(t time.Time, do func()) {
	s.order++
	heap.Push(&s.events, event{t, s.order, do})
}

func (s *keyedSim) run(t *testing.T, arrivals []*keyedJob) {
	t.Helper()
	for _, j := range arrivals {
		if j.at == 0 {
			s.pending = append(s.pending, j)
		} else {
			s.at(Start.Add(j.at), func() { s.pending = append(s.pending, j) })
		}
	}
	s.at(Start, func() {})
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event) //nolint:forcetypeassert // there are no others
		if e.at.Sub(Start) > keyedFor {
			break
		}
		s.now = e.at
		e.do()
		if err := s.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.b == nil {
			continue
		}
		if now := s.b.View().Incident; now != s.incident {
			if s.incident = now; now != "" {
				s.opened++
			}
		}
	}
	s.idle = max(s.idle, keyedFor-s.last)
}

// fill starts calls while there are slots and jobs whose key permits it.
func (s *keyedSim) fill(ctx context.Context) error {
	for s.flying < keyedSlots && !s.now.Before(s.ask) {
		j := s.next()
		if j == nil {
			return nil
		}
		if s.b == nil {
			if wait := s.api.wait(j.key, s.now); wait > 0 {
				s.hold(j, s.now.Add(wait))
				continue
			}
			s.begin(ctx, breaker.Permit{}, j)
			continue
		}
		p, err := s.b.Key(strconv.Itoa(j.key)).Allow(ctx)
		open, refused := errors.AsType[*breaker.OpenError](err)
		switch {
		case err != nil && !refused:
			return err //nolint:wrapcheck // it is a test
		case refused && open.Name == s.b.Name():
			s.pending = slices.Insert(s.pending, 0, j)
			s.version, s.ask = s.b.View().Version, s.now.Add(max(time.Millisecond, min(open.RetryAfter, 100*time.Millisecond)))
			s.at(s.ask, func() {})
			return nil
		case refused:
			until := open.Until
			if !until.After(s.now) {
				until = s.now.Add(min(max(open.RetryAfter, 20*time.Millisecond), 100*time.Millisecond))
			}
			s.hold(j, until)
		default:
			s.begin(ctx, p, j)
		}
	}
	return nil
}

// next is the next job: of a key that may call again, or in line.
func (s *keyedSim) next() *keyedJob {
	due := -1
	for key, jobs := range s.held {
		if at := s.until[key]; len(jobs) > 0 && !s.now.Before(at) && (due < 0 || at.Before(s.until[due]) || at.Equal(s.until[due]) && key < due) {
			due = key
		}
	}
	if due >= 0 {
		j := s.held[due][0]
		if s.held[due] = s.held[due][1:]; len(s.held[due]) == 0 {
			delete(s.held, due)
		}
		return j
	}
	for len(s.pending) > 0 {
		j := s.pending[0]
		s.pending = s.pending[1:]
		if len(s.held[j.key]) == 0 {
			return j
		}
		s.held[j.key] = append(s.held[j.key], j)
	}
	return nil
}

func (s *keyedSim) hold(j *keyedJob, until time.Time) {
	s.held[j.key] = slices.Insert(s.held[j.key], 0, j)
	s.until[j.key] = until
	s.at(until, func() {})
}

func (s *keyedSim) begin(ctx context.Context, p breaker.Permit, j *keyedJob) {
	s.flying++
	latency := 50*time.Millisecond + time.Duration(s.rng.Float64()*450)*time.Millisecond
	began := s.now.Sub(Start)
	if s.b == nil {
		s.api.call(j.key, s.now, s.now.Add(latency))
		s.at(s.now.Add(latency), func() { s.flying--; s.accept(j, began) })
		return
	}
	s.at(s.now.Add(latency/2), func() {
		ok, hint := s.api.call(j.key, s.now, s.now.Add(latency/2))
		s.at(s.now.Add(latency/2), func() { s.ended(ctx, p, j, began, ok, hint) })
	})
}

func (s *keyedSim) accept(j *keyedJob, began time.Duration) {
	s.accepted++
	s.idle, s.last = max(s.idle, s.now.Sub(Start)-s.last), s.now.Sub(Start)
	s.waits = append(s.waits, (began - j.at).Seconds())
	if j.key > 0 {
		s.others = append(s.others, (began - j.at).Seconds())
	}
}

func (s *keyedSim) ended(ctx context.Context, p breaker.Permit, j *keyedJob, began time.Duration, ok bool, hint time.Duration) {
	s.flying--
	o := breaker.Success()
	if !ok {
		o = breaker.RateLimited(hint)
	}
	status, err := p.Report(ctx, o.WithJob(strconv.Itoa(j.id)))
	if err != nil {
		panic(err)
	}
	s.ask = time.Time{}
	if ok {
		s.accept(j, began)
		return
	}
	s.refused++
	until := s.now.Add(max(hint, time.Second))
	if status.State != breaker.Closed && status.OpenUntil.After(s.now) {
		if until = s.now.Add(hint); status.OpenUntil.After(until) {
			until = status.OpenUntil
		}
	}
	s.at(until, func() { s.pending = slices.Insert(s.pending, 0, j) })
}

// keyedJobs are the jobs of a model.
func (m *keyedModel) arrivals(seed uint64) (all []*keyedJob) {
	rng := rand.New(rand.NewPCG(seed, 5))
	weights, sum := make([]float64, m.keys), 0.0
	for k := range weights {
		weights[k] = 1 / math.Pow(float64(k+1), m.zipf)
		sum += weights[k]
	}
	n := 3000
	if m.rate > 0 {
		n = int(keyedFor / m.rate)
	}
	for i := range n {
		j := &keyedJob{id: i, at: time.Duration(i) * m.rate}
		switch {
		case m.hot > 0:
			if j.key = 0; rng.Float64() >= m.hot {
				j.key = 1 + rng.IntN(m.keys-1)
			}
		case m.zipf == 0:
			j.key = i % m.keys
		default:
			for x := rng.Float64() * sum; j.key < m.keys-1 && x >= weights[j.key]; j.key++ {
				x -= weights[j.key]
			}
		}
		all = append(all, j)
	}
	return all
}

func (m *keyedModel) play(t *testing.T, rdb redis.UniversalClient, seed uint64) *keyedSim {
	t.Helper()
	s := &keyedSim{
		api: &keyedAPI{*m, rand.New(rand.NewPCG(seed, 3)), map[string][]limit{}}, now: Start,
		rng: rand.New(rand.NewPCG(seed, 0)), held: map[int][]*keyedJob{}, until: map[int]time.Time{},
	}
	if rdb != nil {
		var err error
		s.b, err = breaker.NewVirtual(t.Context(), rdb, breaker.Options{
			Instance: "simulation", Destination: "simulated", MaxInFlight: keyedSlots,
		}, func() time.Time { return s.now }, s.rng.Float64)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.b.Close() }()
	} else {
		s.api.shed = 0
	}
	s.run(t, m.arrivals(seed))
	return s
}

func percentile(all []float64, part float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(part*float64(len(all)-1))]
}

// Whose limit it is, is found out with few refused calls, beside an oracle that knows the limits: default settings, 250 s,
// 30 callers, 50 to 500 ms.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, m := range keyedModels() {
		bound := m.accepted > 0
		if !strings.Contains(m.name, *oracleOnly) || !bound && !*keysAll {
			continue
		}
		oracle, s := m.play(t, nil, 1), m.play(t, redistest.Database(t).Client(t), 1)
		for seed := uint64(2); seed <= *keysSeeds; seed++ {
			o, v := m.play(t, nil, seed), m.play(t, redistest.Database(t).Client(t), seed)
			oracle.accepted, s.accepted, s.refused, s.opened = oracle.accepted+o.accepted, s.accepted+v.accepted, s.refused+v.refused, s.opened+v.opened
			s.idle, oracle.idle = max(s.idle, v.idle), max(o.idle, oracle.idle)
			s.others = append(s.others, v.others...)
		}
		s.refused /= int(*keysSeeds)
		part := float64(s.accepted) / float64(oracle.accepted)
		t.Logf("%-36s %4d of %4d accepted (%.2f), %4d refused, idle %3.0f s (%.0f), opened %d; others' p95 %.1f s (%.1f)", m.name, s.accepted, oracle.accepted, part,
			s.refused, s.idle.Seconds(), oracle.idle.Seconds(), s.opened, percentile(s.others, .95), percentile(oracle.others, .95))
		if part < m.accepted || m.refused > 0 && s.refused > m.refused || m.others > 0 && percentile(s.others, .95) > m.others {
			t.Errorf("%s: %.2f of the oracle's calls accepted, %d refused; want at least %v, at most %d", m.name, part, s.refused, m.accepted, m.refused)
		}
	}
}
