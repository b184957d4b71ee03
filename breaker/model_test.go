package breaker

import (
	"errors"
	flags "flag"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Whatever callers, operators, time and Redis do: what docs/invariants.md says holds after each step, and in the end an API that
// accepts all calls gets them.
func TestModel(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	setDefault(t, "rapid.checks", strconv.Itoa(modelChecks))
	setDefault(t, "rapid.steps", "60")
	setDefault(t, "rapid.nofailfile", "true") // the seed is enough
	rdb := redistest.Shared(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) { playModel(t, rt, rdb) })
}

// given are the flags of the command line, and not those that tests set.
var given = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	flags.Visit(func(f *flags.Flag) { names[f.Name] = true })
	return names
})

// setDefault sets a flag unless it was given.
func setDefault(t *testing.T, name, value string) {
	t.Helper()
	if !given()[name] {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// play is one sequence.
type play struct {
	*harness
	rt      *rapid.T
	keys    []string
	calls   []*modelCall
	began   time.Time
	forward time.Duration // by which Redis's clock has jumped ahead
	jumped  bool
	long    int // times that the API asked for a wait above the longest cooldown: for longHint

	// What was observed of the breaker of each key, "" for the destination's.
	open    map[string]bool
	probing map[string]probing // the latest probe, while its breaker is HALF_OPEN
}

const longHint = time.Hour

// modelCall is a call in flight.
type modelCall struct {
	Permit
	key string
}

// probing is a probe that is under way, until its lease ends.
type probing struct {
	id    uint64 // of its permit
	until time.Time
}

func playModel(t *testing.T, rt *rapid.T, rdb redis.UniversalClient) {
	o := Options{
		Destination: redistest.Name(t, "model"), Instance: "worker-1", NoLearning: rapid.Bool().Draw(rt, "no learning"),
		FailureThreshold: 2, Cooldown: 10 * second, CooldownMultiplier: 2, CooldownJitter: -1, MaxCooldown: minute, ProbeTimeout: 20 * second,
		MaxInFlight: rapid.SampledFrom([]int{1, 4}).Draw(rt, "callers"),
	}
	c := newFakeClock()
	b, err := newTestBreaker(rdb, o, c.clock())
	if err != nil {
		rt.Fatal(err)
	}
	p := &play{
		harness: &harness{
			t: t, rdb: rdb, place: placeOf(o.Destination, ""), clock: c, b: b, permits: map[string]Permit{}, options: o, instances: map[string]*Breaker{},
		},
		rt: rt, keys: []string{"", "a", "b"}, began: c.now(), open: map[string]bool{}, probing: map[string]probing{},
	}
	defer func() {
		b.Close()
		p.deleteAll()
	}()
	p.settle()
	rt.Repeat(map[string]func(*rapid.T){
		"allow":  p.allow,
		"allow2": p.allow, // twice as often
		"forKey": p.forKey,
		"report": p.report,
		"again":  p.again,
		"crash":  func(rt *rapid.T) { p.take(rt) }, // the call is never reported
		"pass":   p.pass,
		"pass2":  p.pass,
		"jump":   p.jump,
		"hand":   p.operate,
		"lose":   p.lose,
		"":       func(*rapid.T) { p.observe() },
	})
	p.goesOn()
}

// settle does what an instance does by itself: it registers, reads, repairs, and says what it has in flight.
func (p *play) settle() {
	live(p.harness)
	look(p.harness)
	p.b.expirePermits()
	if err := p.b.healSome(p.t.Context(), 1); err != nil {
		p.rt.Fatal(err)
	}
	p.b.sendJoins(p.t.Context())
	look(p.harness)
	if p.jumped {
		return // what has passed here may be ahead there
	}
	for _, key := range p.keys {
		if seen, stored := describe(p.b.Key(key).Status()), describe(p.on(key).status()); seen != stored {
			p.rt.Fatalf("the instance takes %q for %s: it is %s", key, seen, stored)
		}
	}
}

func (p *play) on(key string) *harness {
	h := *p.harness
	h.place = placeOf(p.place.name, key)
	return &h
}

// observe notes the state of each breaker, as its operator sees it.
func (p *play) observe() {
	for _, key := range p.keys {
		s := p.on(key).status()
		p.open[key] = s.State == Open && (s.UntilReset || s.Remaining > 0)
		if s.State != HalfOpen {
			delete(p.probing, key)
		}
		if s.Failures < 0 || s.Wasted < 0 || s.SlowStart < 0 {
			p.rt.Fatalf("negative numbers: %s", describe(s))
		}
	}
}

// permitted holds a permit against the invariants, by what was observed before it. One that was taken before may go on to its key
// after the destination's breaker has opened.
func (p *play) permitted(permit Permit, taken bool) {
	check := func(key, probe string) {
		if p.open[key] {
			p.rt.Fatalf("OPEN holds: a call for %q is permitted while the breaker of %q is open", permit.Key(), key)
		}
		if permit.holds&holdWords[probe] == 0 {
			return
		}
		if other, ok := p.probing[key]; ok && other.id != permit.id && other.until.After(p.clock.now()) {
			p.rt.Fatalf("One probe: the breaker of %q has a second one", key)
		}
		p.probing[key] = probing{permit.id, p.clock.now().Add(p.options.ProbeTimeout)}
	}
	if !taken {
		check("", "probe")
	}
	if permit.Key() != "" {
		check(permit.Key(), "key-probe")
	}
}

// refused holds a refusal against the bounds: the longest cooldown, or a part of the time for which the API has refused all calls.
func (p *play) refused(err error) time.Duration {
	open, ok := errors.AsType[*OpenError](err)
	if !ok {
		p.rt.Fatal(err)
	}
	most := max(p.options.MaxCooldown, p.options.ProbeTimeout)
	if !p.options.NoLearning {
		most = max(most, (p.clock.now().Sub(p.began)+p.forward)/2)
	}
	if p.long > 1 { // what the API asks for twice is believed
		most = max(most, longHint)
	}
	if open.Cause != CauseManual && open.RetryAfter > most+time.Second {
		p.rt.Fatalf("it waits %v, more than %v: %v", open.RetryAfter, most, err)
	}
	return open.RetryAfter
}

func (p *play) key(rt *rapid.T) string { return rapid.SampledFrom(p.keys).Draw(rt, "key") }

func (p *play) allow(rt *rapid.T) {
	p.settle()
	p.ask(p.key(rt))
}

func (p *play) ask(key string) (wait time.Duration) {
	permit, err := p.b.Key(key).Allow(p.t.Context())
	if err != nil {
		return p.refused(err)
	}
	p.permitted(permit, false)
	p.calls = append(p.calls, &modelCall{permit, key})
	return 0
}

// take takes a call out of those in flight.
func (p *play) take(rt *rapid.T) *modelCall {
	if len(p.calls) == 0 {
		rt.Skip("no call is in flight")
	}
	i := rapid.IntRange(0, len(p.calls)-1).Draw(rt, "call")
	call := p.calls[i]
	p.calls = slices.Delete(p.calls, i, i+1)
	return call
}

func (p *play) forKey(rt *rapid.T) {
	call := p.take(rt)
	p.settle()
	if call.key == "" {
		key := rapid.SampledFrom(p.keys[1:]).Draw(rt, "key")
		permit, err := call.ForKey(p.t.Context(), key)
		if err == nil {
			p.permitted(permit, true)
			call.Permit, call.key = permit, key
		} else {
			p.refused(err)
		}
	}
	p.calls = append(p.calls, call)
}

func (p *play) outcome(rt *rapid.T) Outcome {
	outcomes := []Outcome{
		Success(), Success(), Success(), RateLimited(0), RateLimited(0), Failure(), Neutral(), Answered(503), NoAnswer(),
		RateLimited(time.Millisecond), RateLimited(5 * second), RateLimited(longHint),
	}
	for _, left := range []int{0, 1, 3, 8, 50} {
		outcomes = append(outcomes, told(left, rapid.SampledFrom([]time.Duration{second, 5 * second, 30 * second, 2 * minute}).Draw(rt, "reset"), 6))
	}
	scope := rapid.SampledFrom([]Scope{ScopeUnknown, ScopeUnknown, ScopeUser, ScopeGlobal}).Draw(rt, "scope")
	o := rapid.SampledFrom(outcomes).Draw(rt, "outcome")
	if o.hint == longHint {
		p.long++
	}
	return o.WithScope(scope).WithJob(rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(rt, "job"))
}

func (p *play) report(rt *rapid.T) {
	call := p.take(rt)
	p.settle()
	p.ended(call)
	if rapid.IntRange(0, 9).Draw(rt, "unused") == 0 {
		if err := call.Release(p.t.Context()); err != nil {
			rt.Fatal(err)
		}
	} else if _, err := call.Report(p.t.Context(), p.outcome(rt)); err != nil {
		rt.Fatal(err)
	}
}

// again reports twice: the second time changes nothing.
func (p *play) again(rt *rapid.T) {
	call := p.take(rt)
	p.settle()
	p.ended(call)
	o := p.outcome(rt)
	var got [2]string
	for i := range got {
		if _, err := call.Report(p.t.Context(), o); err != nil {
			rt.Fatal(err)
		}
		for _, key := range p.keys {
			got[i] += describe(p.on(key).status()) + "; "
		}
	}
	if got[0] != got[1] {
		rt.Fatalf("%v reported once: %s\ntwice: %s", o, got[0], got[1])
	}
}

// ended notes that a call has ended.
func (p *play) ended(call *modelCall) {
	maps.DeleteFunc(p.probing, func(_ string, probe probing) bool { return probe.id == call.id })
}

func (p *play) pass(rt *rapid.T) {
	lengths := []time.Duration{time.Millisecond, second, 3 * second, 10 * second, 25 * second, minute, 10 * minute}
	for _, key := range p.keys { // to the instant that a cooldown ends, and just before it
		if left := p.on(key).status().Remaining; left > time.Millisecond {
			lengths = append(lengths, left, left-time.Millisecond)
		}
	}
	d := rapid.SampledFrom(lengths).Draw(rt, "time")
	p.clock.advance(d, d)
}

// jump has Redis's clock jump, by which it ends leases.
func (p *play) jump(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "luck") != 0 {
		rt.Skip("not often")
	}
	d := rapid.SampledFrom([]time.Duration{-time.Hour, -minute, minute, time.Hour}).Draw(rt, "jump")
	p.clock.advance(0, d)
	p.jumped = true
	p.forward += max(0, d)
	for key, probe := range p.probing {
		p.probing[key] = probing{probe.id, probe.until.Add(-max(0, d))}
	}
}

func (p *play) operate(rt *rapid.T) {
	key := p.key(rt)
	kind := rapid.SampledFrom([]policy.Kind{policy.Tripped, policy.Reset, policy.Reset, policy.Forcing, policy.Forgotten}).Draw(rt, "kind")
	length := rapid.SampledFrom([]time.Duration{0, second, 20 * second, 5 * minute}).Draw(rt, "length")
	p.settle()
	delete(p.probing, key)
	p.on(key).byHand(kind, "ann", millis(length), "")
}

func (p *play) deleteAll() {
	for _, key := range p.keys {
		if err := p.rdb.Del(p.t.Context(), placeOf(p.place.name, key).keys...).Err(); err != nil {
			p.rt.Fatal(err)
		}
	}
}

// lose takes all data from Redis.
func (p *play) lose(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "luck") != 0 {
		rt.Skip("not often")
	}
	p.deleteAll()
	clear(p.open)
	clear(p.probing)
	p.clock.advance(time.Millisecond, time.Millisecond)
}

// counts has an instance with a cap count the calls in flight: then leases that are too long, as the clock went back, begin anew.
func (p *play) counts() {
	o := p.options
	o.Instance, o.FleetConcurrency, o.KeyConcurrency = "counts", 1000, 1000
	b, err := newTestBreaker(p.rdb, o, p.clock.clock())
	if err != nil {
		p.rt.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.readSnapshot(p.t.Context()); err != nil {
		p.rt.Fatal(err)
	}
	for _, key := range p.keys {
		permit, err := b.Key(key).Allow(p.t.Context())
		if err == nil {
			err = permit.Release(p.t.Context())
		}
		if err != nil && !errors.Is(err, ErrOpen) {
			p.rt.Fatal(err)
		}
	}
}

// goesOn loses all calls, and then accepts each: none waits for longer than it may, and none that was lost stays in flight.
func (p *play) goesOn() {
	for _, key := range p.keys {
		p.on(key).byHand(policy.Reset, "ann", 0, "") // operators may have tripped it for ever
	}
	p.calls = nil
	clear(p.open)
	for range 2 {
		p.counts()
		p.clock.advance(p.options.ProbeTimeout+second, p.options.ProbeTimeout+second)
		p.settle()
	}
	for asked, accepted := 0, 0; accepted < 30; asked++ {
		if asked > 150 {
			p.rt.Fatalf("%d of %d times a call was let in: %+v", accepted, asked, p.b.view.Load().record)
		}
		wait := max(p.ask(p.keys[asked%len(p.keys)]), 100*time.Millisecond)
		for _, call := range p.calls {
			if _, err := call.Report(p.t.Context(), Success()); err != nil {
				p.rt.Fatal(err)
			}
			accepted++
		}
		p.calls = nil
		clear(p.probing)
		p.clock.advance(wait, wait)
		p.settle()
	}
	inFlight := p.place.keys[10]
	if n, err := p.rdb.ZCount(p.t.Context(), inFlight, strconv.FormatInt(p.clock.redis/1000+1, 10), "+inf").Result(); err != nil || n != 0 {
		p.rt.Fatalf("%d calls are in flight, and none was made: %v", n, err)
	}
}
