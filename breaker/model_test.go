package breaker

import (
	"errors"
	flags "flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// Whatever callers, operators and time do: after each step the breakers of a
// destination and of its keys are as the rules of the design say.
func TestModel(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	setDefault(t, "rapid.checks", strconv.Itoa(modelChecks))
	setDefault(t, "rapid.steps", "60")
	setDefault(t, "rapid.nofailfile", "true") // the seed is enough
	rdb := redistest.Shared(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) { playModel(t, rt, rdb) })
}

// setDefault sets a flag unless it was given.
func setDefault(t *testing.T, name, value string) {
	t.Helper()
	given := false
	flags.Visit(func(f *flags.Flag) { given = given || f.Name == name })
	if !given {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// play is one sequence.
type play struct {
	*harness
	rt      *rapid.T
	model   *model
	keys    []string
	limits  map[string]int // calls of a whole window, by key
	numbers int

	// What was observed of the breaker of each key, "" for the destination's.
	open    map[string]bool
	probing map[string]probing // the latest probe, while its breaker is HALF_OPEN
}

// probing is a probe that is under way, until its lease ends.
type probing struct {
	id    uint64 // of its permit
	until time.Time
}

func playModel(t *testing.T, rt *rapid.T, rdb redis.UniversalClient) {
	o := modelOptions
	o.Destination, o.Instance = redistest.Name(t, "model"), "worker-1"
	c := newFakeClock()
	b, err := newTestBreaker(rdb, o, c.clock())
	if err != nil {
		rt.Fatal(err)
	}
	defer b.Close()
	p := &play{
		harness: &harness{t: t, rdb: rdb, place: placeOf(o.Destination, ""), clock: c, b: b, permits: map[string]Permit{}, options: o},
		rt:      rt, keys: []string{"", "a", "b"}, limits: map[string]int{},
		model: newModel(time.UnixMicro(epoch), "a", "b"), open: map[string]bool{}, probing: map[string]probing{},
	}
	for _, key := range p.keys {
		p.limits[key] = rapid.SampledFrom([]int{2, 6, 100}).Draw(rt, "limit of "+key)
	}
	defer func() {
		places := placeOf(o.Destination, "").keys
		for _, key := range p.keys[1:] {
			places = append(places, placeOf(o.Destination, key).keys[13:]...)
		}
		rdb.Del(t.Context(), places...)
	}()
	p.settle()
	rt.Repeat(map[string]func(*rapid.T){
		"allow":  p.allow,
		"allow2": p.allow, // twice as often
		"forKey": p.forKey,
		"report": p.report,
		"again":  p.again,
		"pass":   p.pass,
		"pass2":  p.pass,
		"hand":   p.byHand,
		"lose":   p.lose,
		"":       func(*rapid.T) { p.check() },
	})
}

// settle does what an instance does by itself: it registers, reads, and tells what it
// has in flight.
func (p *play) settle() {
	live(p.harness)
	look(p.harness)
	p.b.sendJoins(p.t.Context())
}

func (p *play) check() {
	for _, key := range p.keys {
		s := p.statusOf(key)
		s.Remaining = s.Remaining.Round(time.Millisecond)
		if got, want := fmt.Sprintf("%s level=%d", describe(s), s.Level), p.model.describe(key); got != want {
			p.rt.Fatalf("%s is   %q,\nand should be %q", p.model.breakers[key].name, got, want)
		}
		p.open[key] = s.State == Open && (s.OpenUntil.IsZero() || s.OpenUntil.After(p.model.now))
		if s.State != HalfOpen {
			delete(p.probing, key)
		}
		p.forgetPace(key)
	}
}

// forgetPace makes no slow start a paced one: TestSpacedCalls has those.
func (p *play) forgetPace(key string) {
	hash := placeOf(p.place.name, key).keys[0]
	if key != "" {
		hash = placeOf(p.place.name, key).keys[14]
	}
	if n, err := p.rdb.HGet(p.t.Context(), hash, "spaced").Int(); err == nil && n > 0 {
		if err := p.rdb.HSet(p.t.Context(), hash, "spaced", 0).Err(); err != nil {
			p.rt.Fatal(err)
		}
	}
}

// permitted holds a permit against the invariants that users rely on, by what was
// observed before it: docs/invariants.md, "One probe" and "OPEN holds". One that was
// taken before may go on to its key after the destination's breaker has opened.
func (p *play) permitted(permit Permit, taken bool) {
	observe := func(key, probe string) {
		if p.open[key] {
			p.rt.Fatalf("OPEN holds: a call for %q is permitted while the breaker of %q is open", permit.Key(), key)
		}
		if permit.holds&holdWords[probe] == 0 {
			return
		}
		if other, ok := p.probing[key]; ok && other.id != permit.id && other.until.After(p.model.now) {
			p.rt.Fatalf("One probe: the breaker of %q has a second one", key)
		}
		p.probing[key] = probing{permit.id, p.model.now.Add(modelOptions.ProbeTimeout)}
	}
	if !taken {
		observe("", "probe")
	}
	if permit.Key() != "" {
		observe(permit.Key(), "key-probe")
	}
}

// ended notes that the call of a permit has ended.
func (p *play) ended(permit Permit) {
	maps.DeleteFunc(p.probing, func(_ string, probe probing) bool { return probe.id == permit.id })
}

func (p *play) on(key string) *harness {
	h := *p.harness
	h.place = placeOf(p.place.name, key)
	return &h
}

func (p *play) statusOf(key string) Status { return p.on(key).status() }

func (p *play) operateOn(key string, kind policy.Kind, length int64, reason string) {
	p.on(key).byHand(kind, "ann", length, reason)
}

func (p *play) key(rt *rapid.T) string { return rapid.SampledFrom(p.keys).Draw(rt, "key") }

// answer is what Allow or ForKey said, in the words of the model.
func (p *play) answer(id int, permit Permit, err error) string {
	var open *OpenError
	switch {
	case errors.As(err, &open):
		name := "D" + strings.TrimPrefix(open.Name, p.place.name)
		return fmt.Sprintf("%s %s %s for %v", name, open.State, open.Cause, open.RetryAfter.Round(time.Millisecond))
	case err != nil:
		p.rt.Fatal(err)
	}
	_, taken := p.permits[strconv.Itoa(id)]
	p.permits[strconv.Itoa(id)] = permit
	p.permitted(permit, taken)
	var words []string
	for _, word := range []string{"probe", "counted", "key-probe", "key-counted"} {
		if permit.holds&holdWords[word] != 0 {
			words = append(words, word)
		}
	}
	if words == nil {
		return "permit"
	}
	return strings.Join(words, " ")
}

func (p *play) same(what, got, want string) {
	p.rt.Logf("%s: %s", what, got)
	if got != want {
		p.rt.Fatalf("%s: got  %q\nwant %q", what, got, want)
	}
}

func (p *play) allow(rt *rapid.T) {
	p.settle()
	key := p.key(rt)
	p.numbers++
	permit, err := p.b.Key(key).Allow(p.t.Context())
	got := p.answer(p.numbers, permit, err)
	p.same(fmt.Sprintf("%d: allow %q", p.numbers, key), got, p.model.allow(p.numbers, key))
}

// out are the permits that are out and satisfy a condition.
func (p *play) out(rt *rapid.T, cond func(*modelPermit) bool) *modelPermit {
	var out []*modelPermit
	for _, m := range p.model.permits {
		if !m.landed && cond(m) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		rt.Skip("there is none")
	}
	return rapid.SampledFrom(out).Draw(rt, "permit")
}

func anyPermit(*modelPermit) bool { return true }

func (p *play) forKey(rt *rapid.T) {
	m := p.out(rt, func(m *modelPermit) bool { return m.key == "" })
	p.settle()
	key := rapid.SampledFrom(p.keys[1:]).Draw(rt, "key")
	before := p.permits[strconv.Itoa(m.id)]
	permit, err := before.ForKey(p.t.Context(), key)
	got := p.answer(m.id, permit, err)
	want := p.model.forKey(m, key)
	if before.known() {
		want = strings.Replace(want, "known", map[bool]string{true: "probe", false: "counted"}[before.holds&holdsProbe != 0], 1)
	}
	p.same(fmt.Sprintf("%d: for key %q", m.id, key), got, want)
}

func (p *play) outcome(rt *rapid.T, m *modelPermit) Outcome {
	scope := rapid.SampledFrom([]Scope{ScopeUnknown, ScopeUnknown, ScopeUser, ScopeGlobal}).Draw(rt, "scope")
	switch rapid.SampledFrom([]string{"success", "success", "told", "told", "limited", "hinted", "failure", "neutral"}).Draw(rt, "outcome") {
	case "told":
		owner := m.key
		if scope == ScopeGlobal {
			owner = ""
		}
		o := rapid.SampledFrom([]Outcome{Success(), Success(), Failure()}).Draw(rt, "told by")
		return o.WithScope(scope).WithBudget(Budget{
			Remaining: rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 9, 50}).Draw(rt, "left"),
			Reset:     rapid.SampledFrom([]time.Duration{second, 5 * second, 20 * second, 28 * second, 30 * second, 32 * second, 2 * minute}).Draw(rt, "reset"),
			Limit:     p.limits[owner],
		})
	case "limited":
		return RateLimited(0).WithScope(scope)
	case "hinted":
		hint := rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * second, 30 * second, time.Hour}).Draw(rt, "hint")
		return RateLimited(hint).WithScope(scope)
	case "failure":
		return Failure().WithScope(scope)
	case "neutral":
		return Neutral().WithScope(scope)
	}
	return Success().WithScope(scope)
}

func (p *play) report(rt *rapid.T) {
	m := p.out(rt, anyPermit)
	p.settle()
	permit := p.permits[strconv.Itoa(m.id)]
	p.ended(permit)
	if rapid.IntRange(0, 9).Draw(rt, "unused") == 0 {
		rt.Logf("%d: release", m.id)
		if err := permit.Release(p.t.Context()); err != nil {
			rt.Fatal(err)
		}
		p.model.release(m)
		return
	}
	o := p.outcome(rt, m)
	rt.Logf("%d: report %v, scope %q, left %v %+v", m.id, o, o.scope, o.hasBudget, o.budget)
	if _, err := permit.Report(p.t.Context(), o); err != nil {
		rt.Fatal(err)
	}
	p.model.report(m, o)
}

// again reports twice.
func (p *play) again(rt *rapid.T) {
	m := p.out(rt, anyPermit)
	p.settle()
	o := rapid.SampledFrom([]Outcome{RateLimited(0), RateLimited(5 * second), Failure(), Neutral()}).Draw(rt, "outcome")
	rt.Logf("%d: report %v, twice", m.id, o)
	p.ended(p.permits[strconv.Itoa(m.id)])
	for range 2 {
		if _, err := p.permits[strconv.Itoa(m.id)].Report(p.t.Context(), o); err != nil {
			rt.Fatal(err)
		}
		p.model.report(m, o)
	}
}

func (p *play) pass(rt *rapid.T) {
	lengths := []time.Duration{time.Millisecond, second, 3 * second, 10 * second, 25 * second, minute, 10 * minute}
	for _, key := range slices.Sorted(maps.Keys(p.model.breakers)) { // to the instant that something ends, and just before it
		b := p.model.breakers[key]
		for _, at := range []time.Time{b.until, b.probeEnd, b.probeAfter, b.reset, b.forcedUntil, b.quietSince.Add(b.lastCooldown)} {
			if d := at.Sub(p.model.now); d > time.Millisecond && d < time.Hour {
				lengths = append(lengths, d, d-time.Millisecond)
			}
		}
	}
	d := rapid.SampledFrom(lengths).Draw(rt, "time")
	p.clock.advance(d, d)
	p.model.now = p.model.now.Add(d)
	rt.Logf("%v later", d)
}

func (p *play) byHand(rt *rapid.T) {
	key := p.key(rt)
	length := rapid.SampledFrom([]time.Duration{0, second, 20 * second, 5 * minute}).Draw(rt, "length")
	what := rapid.SampledFrom([]string{"trip", "reset", "reset", "reset", "force"}).Draw(rt, "what")
	p.settle()
	rt.Logf("%s %q for %v", what, key, length)
	delete(p.probing, key)
	switch what {
	case "trip":
		p.operateOn(key, policy.Tripped, millis(length), "")
		p.model.trip(key, length)
	case "reset":
		p.operateOn(key, policy.Reset, 0, "")
		p.model.resetBreaker(key)
	case "force":
		p.operateOn(key, policy.Forcing, millis(length), "")
		p.model.force(key, length)
	}
}

func (p *play) lose(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "luck") != 0 {
		rt.Skip("not often")
	}
	for _, key := range p.keys {
		if err := p.rdb.Del(p.t.Context(), placeOf(p.place.name, key).keys...).Err(); err != nil {
			rt.Fatal(err)
		}
	}
	rt.Log("all data is lost")
	clear(p.open)
	clear(p.probing)
	p.model.lose()
	p.clock.advance(time.Millisecond, time.Millisecond)
	p.model.now = p.model.now.Add(time.Millisecond)
}
