package publisher

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/jobs"
)

// Pool lets each call of the destination use one of several tokens of the API. members returns the names of the
// tokens, up to 100 valid keys; it is called often, from several goroutines at once. Each member is a key of the
// circuit breaker: KeyRate, KeyConcurrency, learned and announced limits, and the hold after a 401 apply to it as they
// do to the key of a job. The worker chooses the member that has most left when it gives a job its permit, so a job
// never waits for one member while another is free. The handler learns the member from [Member]:
//
//	file, err := httpdest.OpenPool("pool.json", httpdest.TokensFileOptions{})
//	dest, err := httpdest.New(httpdest.Options{URL: url, Tokens: file})
//	err = p.Handle("shop", dest, publisher.Pool(file.Keys))
//
// The job's own key still orders jobs, and keys still take turns. Pool cannot be used together with [KeyBy].
func Pool(members func() []string) HandleOption {
	return func(s *settings) { s.pool = members }
}

// Member returns the member of the [Pool] whose token the handler's call should use; "" without a pool.
func Member(ctx context.Context) string { return progress.Member(ctx) }

// WithMember returns a context whose [Member] is member, for tests of handlers.
func WithMember(ctx context.Context, member string) context.Context {
	return progress.WithMember(ctx, member)
}

// errNoMember is returned while a pool has no token.
var errNoMember = errors.New("the pool of tokens is empty")

// pool chooses the member for each call. The zero value has none.
type pool struct {
	list  func() []string
	b     *breaker.Breaker // the destination's; set before the first call
	moved chan struct{}    // gets a value when a member may have calls again

	mu      sync.Mutex
	members map[string]*member
	turn    uint64 // of the latest call
}

// member is what this process knows of one token without asking Redis.
type member struct {
	key   string
	b     *breaker.Breaker
	calls int    // in flight here
	turn  uint64 // of its latest call here
	// left is what the API said is left, less the calls since, until the instant when its window ends.
	left      int
	leftUntil time.Time
	// full is the last refusal by its limits: the same request is not sent again before fullUntil.
	full       *breaker.OpenError
	fullFor    price
	fullLeave  int
	fullUntil  time.Time
	generation uint64 // grows when a slot or calls are given back
}

// newPool returns nil without members.
func newPool(list func() []string) *pool {
	if list == nil {
		return nil
	}
	return &pool{list: list, members: map[string]*member{}, moved: make(chan struct{}, 1)}
}

// current returns the members as the pool is now. p.mu is held.
func (p *pool) current() []*member {
	names := slices.DeleteFunc(slices.Clone(p.list()), func(key string) bool { return !jobs.ValidName(key) })
	out := make([]*member, 0, len(names))
	for _, key := range names {
		m := p.members[key]
		if m == nil {
			m = &member{key: key, b: p.b.Key(key)}
			p.members[key] = m
		}
		out = append(out, m)
	}
	if len(p.members) > len(names) {
		for key, m := range p.members {
			if m.calls == 0 && !slices.Contains(names, key) {
				delete(p.members, key)
			}
		}
	}
	return out
}

// has reports whether the pool still has the member.
func (p *pool) has(key string) bool { return slices.Contains(p.list(), key) }

// free reports whether a call of some member needs no permit of Redis.
func (p *pool) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.current(), func(m *member) bool { return m.b.Free() })
}

// The order in which members are asked for a permit.
const (
	rankTest    = iota // its wait is over, and one call shows whether its limit is
	rankFree           // nothing limits it
	rankLimited        // Redis knows whether it has a call left
	rankDoubt          // its last call was refused for another reason than a limit
	rankClosed         // its breaker lets nothing through
)

func rankOf(v breaker.View, now time.Time) int {
	switch {
	case v.State == breaker.Open:
		return rankClosed
	case v.State == breaker.HalfOpen && (v.Cause == breaker.CauseCredentials || v.Cause == breaker.CauseOutage || v.ProbeAt.After(now) || v.ProbeBy != ""):
		return rankDoubt
	case v.State == breaker.HalfOpen:
		return rankTest
	case v.Free:
		return rankFree
	}
	return rankLimited
}

// order returns the members, the one with the most left first.
func (p *pool) order(now time.Time) []*member {
	type place struct {
		*member
		rank, left, calls int
		turn              uint64
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	places := []place{}
	for _, m := range p.current() {
		at := place{member: m, left: math.MaxInt, calls: m.calls, turn: m.turn}
		v := m.b.View()
		at.rank = rankOf(v, now)
		if v.Budget != nil {
			at.left = v.Budget.Remaining
		}
		if now.Before(m.leftUntil) {
			at.left = min(at.left, m.left)
		}
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.left, a.left), cmp.Compare(a.calls, b.calls), cmp.Compare(a.turn, b.turn))
	})
	out := make([]*member, len(places))
	for i, at := range places {
		out[i] = at.member
	}
	return out
}

// allow acquires a permit of the first member that has a call left. If all refuse, the error is from the member that
// may go first.
func (p *pool) allow(ctx context.Context, want price, leave int) (breaker.Permit, error) {
	return p.first(want, leave, func(m *member) (breaker.Permit, error) {
		return m.b.Cost(want.cost).Draws(want.draws...).Leave(leave).Allow(ctx)
	})
}

// first calls ask for one member after the other until one grants a permit, or the destination refuses.
func (p *pool) first(want price, leave int, ask func(*member) (breaker.Permit, error)) (breaker.Permit, error) {
	now := time.Now()
	var refused, soonest *breaker.OpenError // a limit that is reached comes first: the gate waits for the cost then
	for _, m := range p.order(now) {
		open, generation := p.knownFull(m, want, leave, now)
		if open == nil {
			got, err := ask(m)
			if err == nil {
				p.took(m, want)
				return got, nil
			}
			if open, _ = errors.AsType[*breaker.OpenError](err); open == nil || open.Name != m.b.Name() || open.Limit != "" {
				return breaker.Permit{}, err
			}
			p.refused(m, want, leave, open, generation)
		}
		if refused == nil || open.Capacity() && !refused.Capacity() || open.Capacity() == refused.Capacity() && sooner(open, refused) {
			refused = open
		}
		if soonest == nil || sooner(open, soonest) {
			soonest = open
		}
	}
	if refused == nil {
		return breaker.Permit{}, errNoMember
	}
	of := *refused
	of.Until, of.RetryAfter = soonest.Until, soonest.RetryAfter
	return breaker.Permit{}, &of
}

// sooner reports whether a refusal ends before another one; one without an end does not.
func sooner(a, b *breaker.OpenError) bool {
	return !a.Until.IsZero() && (b.Until.IsZero() || a.Until.Before(b.Until))
}

// knownFull returns the refusal that Redis would repeat now, or nil.
func (p *pool) knownFull(m *member, want price, leave int, now time.Time) (open *breaker.OpenError, generation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.full == nil || !now.Before(m.fullUntil) || want.cost < m.fullFor.cost || leave < m.fullLeave {
		return nil, m.generation
	}
	again := *m.full
	again.Until, again.RetryAfter = m.fullUntil, max(time.Millisecond, m.fullUntil.Sub(now))
	return &again, m.generation
}

// refused notes that a member's limits refuse. Other workers may give calls back, so the note is short-lived.
func (p *pool) refused(m *member, want price, leave int, open *breaker.OpenError, generation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !open.Capacity() || generation != m.generation {
		return
	}
	m.full, m.fullFor, m.fullLeave, m.fullUntil = open, want, leave, time.Now().Add(pauseAfter(open))
}

// took notes that a member has got one more call.
func (p *pool) took(m *member, want price) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	m.turn, m.full = p.turn, nil
	m.left = max(0, m.left-max(1, want.cost))
}

// opened notes that a member may have calls again.
func (p *pool) opened(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.members[key]; m != nil {
		m.generation++
		m.full = nil
	}
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// begin notes that a call of the member begins. The returned function notes its end, and what the API said is left.
func (p *pool) begin(key string) (end func(left *jobs.Budget)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.members[key]
	if m == nil { // it left the pool meanwhile
		return func(*jobs.Budget) {}
	}
	m.calls++
	return func(left *jobs.Budget) {
		p.mu.Lock()
		defer p.mu.Unlock()
		m.calls--
		if left != nil && left.Reset > 0 && left.Scope != jobs.ScopeGlobal {
			m.left, m.leftUntil = max(0, left.Remaining-m.calls), time.Now().Add(left.Reset)
		}
	}
}

// allowOfPool acquires up to n permits of members.
func (g *gate) allowOfPool(ctx context.Context, n int, want price, leave int) (permits []breaker.Permit, err error) {
	for len(permits) < n {
		got, problem := g.pool.allow(ctx, want, leave)
		if problem != nil {
			err = problem
			break
		}
		if permits = append(permits, got); got.Tests() {
			break // its outcome decides for the next ones
		}
	}
	if len(permits) > 0 {
		return permits, nil
	}
	return nil, err
}

// admitToPool is Admit where the destination has a pool: the grant's permit is one of a member already, but may be for
// another cost.
func (g *gate) admitToPool(ctx context.Context, queue string, cost int, message string, permit any) engine.Admission {
	given, granted := permit.(breaker.Permit)
	if !granted || cost == 0 {
		return engine.Admission{Permit: permit} // the job's permit is acquired, or corrected, for the call
	}
	class := g.class(queue)
	want := g.priceOf(message, cost)
	p, err := given.Leave(g.leave(class)).ForCall(ctx, given.Key(), want.cost, want.draws...)
	if _, refused := errors.AsType[*breaker.OpenError](err); refused {
		if p, err = g.pool.allow(ctx, want, g.leave(class)); err == nil { // another member has more left
			_ = given.Release(context.WithoutCancel(ctx)) // it is repeated, and its lease ends anyway
		}
	}
	if _, never := errors.AsType[*breaker.CostError](err); never {
		g.next.Store(nil)
		return engine.Admission{Permit: permit} // permit has the error, and the job fails
	}
	if open, refused := errors.AsType[*breaker.OpenError](err); refused {
		if open.Capacity() {
			g.next.Store(&price{want.cost, want.draws})
			g.costly.Store(int64(class))
			g.denied.Store(time.Now().UnixNano())
		}
		return engine.Admission{Verdict: engine.Refused}
	}
	if err != nil {
		return engine.Admission{Verdict: engine.Refused, Err: err}
	}
	if last := g.last.Load(); last != nil && last.equal(want) {
		g.next.Store(last) // jobs seem to be alike
	} else {
		g.last.Store(&price{want.cost, want.draws})
		g.next.Store(nil)
	}
	return engine.Admission{Permit: p}
}

// ofPool reports whether the breaker of that name is a member's: its jobs go on with another member.
func (d *decider) ofPool(name string) bool { return d.s.pool != nil && keyOf(name) != "" }

// member is the member of the pool that a permit is for; "" without a pool.
func (d *decider) member(p breaker.Permit) string {
	if d.s.pool == nil {
		return ""
	}
	return p.Key()
}

// keyOpened notes that a key may have calls again.
func (d *destination) keyOpened(key string) {
	if d.gate.pool != nil {
		d.gate.pool.opened(key) // no job is held for a member: the gate waits for it
		return
	}
	d.engine.KeyOpened(key)
}
