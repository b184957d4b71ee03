package breaker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Many clients change a destination's breaker and that of a key under it at once.
// What each of them was told must be explained by some order of their steps, each
// done at one instant between its question and its answer (linearizability).

const (
	linearClients   = 10
	linearSteps     = 60
	linearThreshold = 3
	linearCooldown  = 3 * time.Millisecond
)

// linearInput is one step.
type linearInput struct {
	kind   string // "acquire", "report", "release", "trip", "reset"
	keyed  bool
	token  string
	who    string
	permit uint64 // generation of the permit
	failed bool   // the report says "limited", else "success"
}

// linearOutput is what the client was told.
type linearOutput struct {
	result  string
	version uint64
	parent  seen
	child   seen // if keyed
}

// seen is a breaker after the step.
type seen struct {
	state      State
	failures   int
	generation uint64
	probeBy    string
}

// --- the model: the rules of the breakers, with time left open

type linearBreaker struct {
	seen
	token string // of the probe
}

type linearState struct{ parent, child linearBreaker }

// moved is b after a transition. Its generation is known from the answer only, and
// must have grown.
func (b linearBreaker) moved(to State, told seen) (linearBreaker, bool) {
	grown := told.generation > b.generation
	b.state, b.generation, b.probeBy, b.token = to, told.generation, "", ""
	if to == Closed {
		b.failures = 0
	}
	return b, grown
}

// asked are the ways in which a breaker can answer who asks for leave: time passes,
// so that one that is OPEN may let a probe through or not.
func (b linearBreaker) asked(told seen) []linearAnswer {
	switch b.state {
	case Closed:
		return []linearAnswer{{"closed", b}}
	case HalfOpen:
		if b.token != "" {
			return []linearAnswer{{"denied", b}}
		}
		return []linearAnswer{{"probe", b}}
	}
	answers := []linearAnswer{{"denied", b}}
	if half, ok := b.moved(HalfOpen, told); ok {
		answers = append(answers, linearAnswer{"probe", half})
	}
	return answers
}

type linearAnswer struct {
	decision string
	then     linearBreaker
}

func (a linearAnswer) taken(in linearInput) linearBreaker {
	b := a.then
	if a.decision == "probe" {
		b.token, b.probeBy = in.token, in.who
	}
	return b
}

func linearAcquire(s linearState, in linearInput, out linearOutput) (next []linearState) {
	add := func(result string, s linearState) {
		if result == out.result {
			next = append(next, s)
		}
	}
	for _, p := range s.parent.asked(out.parent) {
		switch {
		case p.decision == "denied":
			add("denied", linearState{p.then, s.child})
		case !in.keyed:
			add(map[string]string{"probe": "granted", "closed": "closed"}[p.decision], linearState{p.taken(in), s.child})
		default:
			for _, c := range s.child.asked(out.child) {
				switch {
				case c.decision == "denied":
					add("denied", linearState{p.then, c.then})
				case c.decision == "probe" || p.decision == "probe":
					add("granted", linearState{p.taken(in), c.taken(in)})
				default:
					add("closed", linearState{p.taken(in), c.taken(in)})
				}
			}
		}
	}
	return next
}

// reported is b after a report; owner is whether the answer counts for it.
func (b linearBreaker) reported(in linearInput, owner bool, told seen) (linearBreaker, bool) {
	switch {
	case b.state == HalfOpen && b.token == in.token && in.failed:
		return b.moved(Open, told)
	case b.state == HalfOpen && b.token == in.token:
		return b.moved(Closed, told)
	case b.state == Closed && in.permit >= b.generation && in.failed && owner:
		b.failures++
		if b.failures >= linearThreshold {
			return b.moved(Open, told)
		}
	case b.state == Closed && in.permit >= b.generation && !in.failed:
		b.failures = 0
	}
	return b, true
}

// linearStep are the states that a step can lead to, given what it answered. A breaker whose time has come may have become
// HALF_OPEN before it: the one that finds that may not be the one that gets the probe.
func linearStep(s linearState, in linearInput, out linearOutput) []linearState {
	states := []linearState{s}
	if half, ok := s.parent.moved(HalfOpen, out.parent); ok && s.parent.state == Open && out.parent.state == HalfOpen {
		states = append(states, linearState{half, s.child})
	}
	for _, s := range states {
		if half, ok := s.child.moved(HalfOpen, out.child); ok && in.keyed && s.child.state == Open && out.child.state == HalfOpen {
			states = append(states, linearState{s.parent, half})
		}
	}
	var next []linearState
	for _, s := range states {
		next = append(next, linearStepFrom(s, in, out)...)
	}
	return next
}

func linearStepFrom(s linearState, in linearInput, out linearOutput) []linearState {
	var next []linearState
	ok := true
	one, told := &s.parent, out.parent
	if in.keyed {
		one, told = &s.child, out.child
	}
	switch in.kind {
	case "acquire":
		next = linearAcquire(s, in, out)
	case "report":
		var grown bool
		s.parent, ok = s.parent.reported(in, !in.keyed, out.parent)
		if in.keyed {
			s.child, grown = s.child.reported(in, true, out.child)
			ok = ok && grown
		}
	case "release":
		for _, b := range []*linearBreaker{&s.parent, one} {
			if b.state == HalfOpen && b.token == in.token {
				b.token, b.probeBy = "", ""
			}
		}
	case "trip":
		*one, ok = one.moved(Open, told)
	case "reset":
		if one.state != Closed || one.failures != 0 {
			*one, ok = one.moved(Closed, told)
		}
	}
	if in.kind != "acquire" && ok {
		next = []linearState{s}
	}
	var agreed []linearState
	for _, s := range next {
		if s.parent.seen == out.parent && (!in.keyed || s.child.seen == out.child) {
			agreed = append(agreed, s)
		}
	}
	return agreed
}

func linearModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{linearState{}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range linearStep(state.(linearState), input.(linearInput), output.(linearOutput)) {
				next = append(next, s)
			}
			return next
		},
	}
	return model.ToModel()
}

// --- the breaker itself

type scriptStore struct {
	rdb         redis.UniversalClient
	destination string
}

func (s scriptStore) do(ctx context.Context, in linearInput) (linearOutput, error) {
	key := ""
	if in.keyed {
		key = "k"
	}
	c := caller{who: in.who, id: in.who, cooldown: linearCooldown, multiplier: 1, maxCooldown: time.Minute}
	place := placeOf(s.destination, key)
	ask := func(script *script, own []any) (reply, error) { return script.run(ctx, s.rdb, place, c, own...) }
	decide := func(e policy.Event, known *reply) (reply, error) {
		d := decision{key: key, options: c.options(false, false), parse: parseRecord, ask: ask}
		d.add(&happened{Event: e, known: known})
		err := d.make(ctx)
		return d.reply, err
	}
	var r reply
	var err error
	switch in.kind {
	case "acquire":
		for {
			r, err = ask(acquireScript, named("permit", in.token, "lease", 3_600_000, "sequence", 1, "calls", "0", "key_calls", "0"))
			if err != nil || r.result != resultDecide {
				break
			}
			if _, err = decide(policy.Event{Kind: policy.Due, OfKey: r.name != s.destination}, &r); err != nil {
				break
			}
		}
	case "report":
		e := policy.Event{Kind: policy.Limited, Permit: in.token, Generation: int64(in.permit), Threshold: linearThreshold}
		if in.failed {
			r, err = decide(e, nil)
			break
		}
		r, err = ask(doneScript, named("permit", in.token, "generation", in.permit, "outcome", "success", "sequence", 1, "calls", "0", "key_calls", "0"))
		if e.Kind = policy.Succeeded; err == nil && r.result == resultDecide {
			r, err = decide(e, &r)
		}
	case "release":
		r, err = ask(releaseScript, named("permit", in.token))
	case "trip":
		r, err = decide(policy.Event{Kind: policy.Tripped, Length: millis(linearCooldown)}, nil)
	case "reset":
		r, err = decide(policy.Event{Kind: policy.Reset}, nil)
	}
	if err != nil {
		return linearOutput{}, err
	}
	see := func(r *record) seen {
		return seen{state: r.state(), failures: int(r.Failures), generation: uint64(r.Generation), probeBy: r.ProbeBy}
	}
	out := linearOutput{result: string(r.result), version: r.version, parent: see(&r.record)}
	if in.keyed {
		out.child = see(&r.keyed)
	}
	return out, nil
}

// --- the check

// linearHistory has clients make steps at once and returns what they saw.
func linearHistory(t *testing.T, store scriptStore, keys bool) []porcupine.Operation {
	t.Helper()
	began := time.Now()
	histories := make([][]porcupine.Operation, linearClients)
	var group sync.WaitGroup
	for client := range linearClients {
		group.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 1))
			step := func(in linearInput) linearOutput {
				in.who = fmt.Sprint("client-", client)
				call := time.Since(began).Nanoseconds()
				out, err := store.do(t.Context(), in)
				if err != nil {
					t.Error(err)
				}
				histories[client] = append(histories[client], porcupine.Operation{
					ClientId: client, Input: in, Call: call, Output: out, Return: time.Since(began).Nanoseconds(),
				})
				return out
			}
			for i := range linearSteps {
				in := linearInput{keyed: keys && random.IntN(2) == 0, token: fmt.Sprintf("%d-%d", client, i)}
				switch random.IntN(20) {
				case 0:
					in.kind = "trip"
					step(in)
					continue
				case 1:
					in.kind = "reset"
					step(in)
					continue
				}
				in.kind = "acquire"
				out := step(in)
				if out.result == "denied" {
					continue
				}
				in.permit = out.version
				in.kind, in.failed = "report", random.IntN(3) > 0
				if random.IntN(10) == 0 {
					in.kind = "release"
				}
				step(in)
			}
		})
	}
	group.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all
}

func TestTransitionsAreLinearizable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for round := range 3 {
		d := redistest.Name(t, "linear")
		rdb := s.Client(t)
		// One call at once: there is no slow start.
		if err := rdb.HSet(t.Context(), placeOf(d, "").keys[1], ":capacity", 1).Err(); err != nil {
			t.Fatal(err)
		}
		history := linearHistory(t, scriptStore{rdb, d}, round > 0)
		result := porcupine.CheckOperationsTimeout(linearModel(), history, time.Minute)
		t.Logf("round %d: %d steps: %s", round, len(history), result)
		if result != porcupine.Ok {
			t.Errorf("round %d: the steps have no order: %s", round, result)
		}
	}
}
