package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// row is one step of a rule: at an instant, an action, and what it answers.
type row struct {
	at   time.Duration
	do   action
	want string
}

type action func(h *harness) string

// harness runs rows on one instance with a clock of its own, which is Redis's
// and the process's clock at once.
type harness struct {
	t       *testing.T
	rdb     redis.UniversalClient
	place   place
	clock   *fakeClock
	b       *Breaker
	permits map[string]Permit

	options   Options
	instances map[string]*Breaker // beside the first
}

// fakeClock stands still until it is set.
type fakeClock struct {
	mu    sync.Mutex
	local time.Time
	redis int64 // µs
}

// epoch is a whole millisecond, so that the rows can name exact waits.
const epoch = int64(1_763_690_400_123_000)

func newFakeClock() *fakeClock {
	return &fakeClock{local: time.Now(), redis: epoch}
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

func (c *fakeClock) redisNow() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strconv.FormatInt(c.redis, 10)
}

func (c *fakeClock) advance(local, redis time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = c.local.Add(local)
	c.redis += redis.Microseconds()
}

func (c *fakeClock) clock() clock { return clock{now: c.now, redis: c.redisNow, random: rand.Float64} }

// runRows runs the rows on both kinds of Redis.
func runRows(t *testing.T, o Options, rows ...row) {
	t.Helper()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		newHarness(t, rdb, o).run(rows)
	})
}

func (h *harness) run(rows []row) {
	h.t.Helper()
	var last time.Duration
	for i, r := range rows {
		h.clock.advance(r.at-last, r.at-last)
		last = r.at
		if got := r.do(h); got != r.want {
			h.t.Fatalf("row %d, at %v: got  %q\n\twant %q", i, r.at, got, r.want)
		}
	}
}

// rule is told by rows.
type rule struct {
	name    string
	options Options
	rows    []row
}

func runRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, s := range rules {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			runRows(t, s.options, s.rows...)
		})
	}
}

// newTestBreaker makes a Breaker that does nothing by itself.
func newTestBreaker(rdb redis.UniversalClient, o Options, c clock) (*Breaker, error) {
	core, err := newCore(rdb, o, c)
	if err != nil {
		return nil, err
	}
	return &Breaker{core: core}, nil
}

// newHarness makes one whose openings last for the whole cooldown. Early tests have rows of their own, see earlytests_test.go.
func newHarness(t *testing.T, rdb redis.UniversalClient, o Options) *harness {
	t.Helper()
	o.NoEarlyTests = true
	return newDefaultHarness(t, rdb, o)
}

func newDefaultHarness(t *testing.T, rdb redis.UniversalClient, o Options) *harness {
	t.Helper()
	o.Destination = redistest.Name(t, "rules")
	if o.Instance == "" {
		o.Instance = "worker-1"
	}
	c := newFakeClock()
	b, err := newTestBreaker(rdb, o, c.clock()) // not started: nothing moves but what a row does
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	h := &harness{t: t, rdb: rdb, place: placeOf(o.Destination, ""), clock: c, b: b, permits: map[string]Permit{}, options: o, instances: map[string]*Breaker{}}
	// As if there were one instance with MaxInFlight calls, by default one: then
	// there is no slow start.
	if err := rdb.HSet(t.Context(), h.place.keys[1], ":capacity", max(1, o.MaxInFlight)).Err(); err != nil {
		t.Fatal(err)
	}
	look(h)
	h.known(b)
	return h
}

// known makes an instance one that has followed Redis's clock for long.
func (h *harness) known(b *Breaker) {
	clocks := []*redisClock{b.redis}
	for _, l := range b.named {
		clocks = append(clocks, l.redis)
	}
	for _, k := range clocks {
		now := h.clock.now()
		redis, _ := strconv.ParseInt(h.clock.redisNow(), 10, 64)
		k.observe(redis, now, now)
		k.steady, k.then = 1, k.ahead
	}
}

// describe is a status in the words of the rows.
func describe(s Status) string {
	parts := []string{s.State.String()}
	if s.UntilReset {
		parts = append(parts, "until reset")
	} else if s.State == Open {
		parts = append(parts, s.Remaining.String())
	}
	if s.Failures > 0 {
		parts = append(parts, fmt.Sprintf("failures=%d", s.Failures))
	}
	if s.Cause != "" {
		parts = append(parts, s.Cause)
	}
	if s.Probes > 0 {
		parts = append(parts, fmt.Sprintf("probes=%d", s.Probes))
	}
	if s.Wasted > 0 {
		parts = append(parts, fmt.Sprintf("wasted=%d", s.Wasted))
	}
	if s.SlowStart > 0 {
		parts = append(parts, fmt.Sprintf("slow=%d", s.SlowStart))
	}
	if s.Budget != nil {
		parts = append(parts, fmt.Sprintf("left=%d/%v of %d", s.Budget.Remaining, s.Budget.Reset.Round(time.Microsecond), s.Budget.Limit))
	}
	if s.Forced != "" {
		parts = append(parts, "forced "+s.Forced)
	}
	return strings.Join(parts, " ")
}

// ask asks for a permit and keeps it under a name.
func ask(name string) action {
	return func(h *harness) string {
		p, err := h.b.Allow(patient(h.t))
		h.permits[name] = p
		var open *OpenError
		switch {
		case errors.As(err, &open):
			return fmt.Sprintf("%s for %v", open.State, open.RetryAfter)
		case err != nil:
			h.t.Fatal(err)
			return ""
		case p.Probe():
			return "probe"
		default:
			return "permit"
		}
	}
}

// tell reports a permit that was asked for.
func tell(name string, o Outcome) action {
	return func(h *harness) string {
		s, err := h.permits[name].Report(patient(h.t), o)
		if err != nil {
			h.t.Fatal(err)
		}
		return describe(s)
	}
}

func release(name string) action {
	return func(h *harness) string {
		if err := h.permits[name].Release(patient(h.t)); err != nil {
			h.t.Fatal(err)
		}
		return describe(h.b.Status())
	}
}

// call asks and reports at once.
func call(o Outcome) action {
	return func(h *harness) string {
		if got := ask("call")(h); got != "permit" && got != "probe" {
			return got
		}
		return tell("call", o)(h)
	}
}

// calls does the same n times.
func calls(n int, o Outcome) action {
	return func(h *harness) (got string) {
		for range n {
			got = call(o)(h)
		}
		return got
	}
}

// get reads what an operator would.
func get(h *harness) string { return describe(h.status()) }

func (h *harness) status() Status {
	h.t.Helper()
	r, p, err := statusBy(patient(h.t), h.rdb, h.name(), caller{now: h.clock.redisNow()})
	if err != nil {
		h.t.Fatal(err)
	}
	return statusOfReply(&r, p)
}

// byHand does what an operator does.
func (h *harness) byHand(kind policy.Kind, who string, length int64, reason string) Status {
	h.t.Helper()
	status, err := DefaultNamespace.change(patient(h.t), h.rdb, h.name(), string(kind), caller{now: h.clock.redisNow(), who: who},
		policy.Event{Kind: kind, Length: length, Reason: reason})
	if err != nil {
		h.t.Fatal(err)
	}
	return status
}

func trip(length time.Duration) action {
	return func(h *harness) string {
		s := h.byHand(policy.Tripped, "ann", millis(length), "maintenance")
		look(h)
		return describe(s)
	}
}

func reset(h *harness) string {
	s := h.byHand(policy.Reset, "ann", 0, "")
	look(h)
	return describe(s)
}

// patient is a context for calls that a busy machine may keep waiting for longer than
// DefaultTimeout.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// look makes the instance read the snapshot, and says what it knows then.
func look(h *harness) string {
	h.clock.advance(time.Nanosecond, 0) // what is read now was asked for after what is known
	if err := h.b.readSnapshot(patient(h.t)); err != nil {
		h.t.Fatal(err)
	}
	return describe(h.b.Status())
}

// advance has the rules look at the breaker, as an instance does now and then.
func advance(h *harness) string {
	if err := h.b.heal(patient(h.t), h.b.key); err != nil {
		h.t.Fatal(err)
	}
	return describe(h.b.Status())
}

// lose deletes keys of the breaker: all of them if none is named.
func lose(which ...int) action {
	return func(h *harness) string {
		keys := h.place.keys
		if len(which) > 0 {
			keys = nil
			for _, i := range which {
				keys = append(keys, h.place.keys[i])
			}
		}
		if err := h.rdb.Del(h.t.Context(), keys...).Err(); err != nil {
			h.t.Fatal(err)
		}
		return ""
	}
}

// set damages a field of the breaker's hash.
func set(field, value string) action {
	return func(h *harness) string {
		if err := h.rdb.HSet(h.t.Context(), h.place.keys[0], field, value).Err(); err != nil {
			h.t.Fatal(err)
		}
		return ""
	}
}

// setRule damages a field of what the rules have written.
func setRule(field string, value any) action {
	return func(h *harness) string {
		redistest.SetRecord(h.t, h.rdb, h.place.keys[0], field, value)
		return ""
	}
}

// statusBy reads a breaker by the clock of a caller.
func statusBy(ctx context.Context, rdb redis.UniversalClient, name string, c caller) (reply, place, error) {
	p, err := DefaultNamespace.parse(name)
	if err != nil {
		return reply{}, place{}, err
	}
	r, err := statusScript.run(ctx, rdb, p, c)
	r.settle()
	return r, p, err
}

// historyOf are the last limit transitions of a breaker; all for 0.
func historyOf(ctx context.Context, rdb redis.UniversalClient, name string, limit int) ([]Event, error) {
	r, err := DefaultNamespace.ReadOne(ctx, rdb, Query{History: cmp.Or(limit, All)}, name)
	return r.History, err
}

// incidentsOf are the last limit incidents of a breaker; all for 0.
func incidentsOf(ctx context.Context, rdb redis.UniversalClient, name string, limit int) ([]Incident, error) {
	r, err := DefaultNamespace.ReadOne(ctx, rdb, Query{Incidents: cmp.Or(limit, All)}, name)
	return r.Incidents, err
}

// breakersOf are a destination's breakers.
func breakersOf(ctx context.Context, rdb redis.UniversalClient, destination string) ([]Status, error) {
	r, err := DefaultNamespace.ReadOne(ctx, rdb, Query{Keys: true}, destination)
	return r.Breakers(), err
}

// jump moves Redis's clock alone.
func jump(d time.Duration) action {
	return func(h *harness) string {
		h.clock.advance(0, d)
		return ""
	}
}

// story is the history in the words of the rows.
func story(h *harness) string {
	events, err := historyOf(h.t.Context(), h.rdb, h.name(), 0)
	if err != nil {
		h.t.Fatal(err)
	}
	incidents := map[string]int{"": 0}
	var parts []string
	for _, e := range events {
		if _, known := incidents[e.Incident]; !known {
			incidents[e.Incident] = len(incidents)
		}
		parts = append(parts, fmt.Sprintf("%s→%s %s #%d by %s", e.From, e.To, e.Cause, incidents[e.Incident], e.By))
	}
	return strings.Join(parts, "; ")
}

// named are names and values, as named.lua takes them; values of "", 0 and false are left out.
func named(pairs ...any) []any {
	out := make([]any, 0, len(pairs))
	for pair := range slices.Chunk(pairs, 2) {
		name, value := pair[0], pair[len(pair)-1]
		switch value {
		case "", 0, int64(0), uint64(0), false:
		case true:
			out = append(out, name, "1")
		default:
			out = append(out, name, value)
		}
	}
	return out
}
