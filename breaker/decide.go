package breaker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// happened is an event, and who waits until it is decided.
type happened struct {
	policy.Event
	inUse        // of a report: its permit is until Redis has it
	keep  bool   // the call goes on: its slot stays taken
	known *reply // whole records, if the script that brought the event has returned them

	ended, accepted, keyAccepted time.Time // as in the event, on this process's clock

	until time.Time // so long it is waited for
	done  chan struct{}
	reply reply
	err   error
}

// decision applies events to the records of a destination and a key, and stores what follows from them. Another
// instance may have changed them meanwhile: then the same events are applied to the records that it has stored.
type decision struct {
	key     string
	options policy.Options
	redis   *redisClock // nil without events of calls
	parse   recordParser
	ask     func(s *script, own []any) (reply, error)

	events         []*happened
	reports, ended []string    // permits
	pair           policy.Pair // before it
	reply          reply
}

// add adds an event.
func (d *decision) add(h *happened) {
	d.events = append(d.events, h)
	if h.Permit == "" {
		return
	}
	d.reports = append(d.reports, h.Permit)
	if !h.keep {
		d.ended = append(d.ended, h.Permit)
	}
}

// at is an instant on Redis's clock, µs; 0 is none.
func (d *decision) at(local time.Time) int64 {
	if d.redis == nil || local.IsZero() {
		return 0
	}
	return d.redis.at(local)
}

// longestPause bounds the pause before a conflict's next try.
const longestPause = 20 * time.Millisecond

// make decides.
func (d *decision) make(ctx context.Context) error {
	reports := strings.Join(d.reports, " ")
	if d.events[0].known != nil && len(d.events) == 1 {
		d.reply = *d.events[0].known
	} else {
		asked := cmp.Or(reports, "-") // none: whole records alone
		var err error
		if d.reply, err = d.ask(doneScript, []any{"permits", asked}); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		own, changed, err := d.next(reports)
		if err != nil {
			return err
		}
		if !changed && reports == "" {
			return nil
		}
		if d.reply, err = d.ask(swapScript, own); err != nil || d.reply.result == resultStored {
			return err
		}
		pause := rand.N(min(time.Duration(try)*time.Millisecond, longestPause)) //nolint:gosec // it spreads tries, and hides nothing
		if wait(ctx, pause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// written is one of the writes of swap.lua.
type written struct {
	Key    bool          `json:"key,omitempty"`
	Record string        `json:"record,omitempty"` // a policy.State without its meter
	Was    *policy.Meter `json:"was,omitempty"`
	Is     *policy.Meter `json:"is,omitempty"`
	Event  string        `json:"event,omitempty"`
	Ended  string        `json:"ended,omitempty"`
	Note   bool          `json:"note,omitempty"`

	Incident string `json:"incident,omitempty"` // the one that is over, which may have been lost

	Add         map[string]int64 `json:"add,omitempty"` // to fields
	LastFailure int64            `json:"last_failure,omitempty"`
	Below       int64            `json:"below,omitempty"` // failures stay
}

// next applies the events to the records of the reply, and returns what swap.lua takes.
func (d *decision) next(reports string) (own []any, changed bool, err error) {
	pair, known, emitted, err := d.reply.pair(d.key, d.parse)
	if err != nil {
		return nil, false, err
	}
	was := pair
	d.pair = pair
	var effects []policy.Effect
	counted, repeated := map[string]bool{}, false
	at := 0
	for _, h := range d.events {
		e := h.Event
		e.Ended, e.Accepted, e.KeyAccepted = d.at(h.ended), d.at(h.accepted), d.at(h.keyAccepted)
		if d.redis != nil {
			e.Steady, _ = d.redis.watch(d.redis.born)
		}
		if e.Permit != "" {
			e.Known, e.Metered, e.KeyMetered = counted[e.Permit], false, false
			if at < len(known) {
				has := func(what string) bool { return strings.Contains(known[at], what) }
				repeated = repeated || has("k")
				e.Known, e.Metered, e.KeyMetered = e.Known || has("k"), has("m"), has("c")
			}
			counted[e.Permit] = true
			at++
		}
		if e.MeterEvent == "" && e.KeyMeterEvent == "" {
			e.MeterEvent, e.KeyMeterEvent = emitted[0], emitted[1]
		}
		var more []policy.Effect
		pair, more = pair.Next(e, d.reply.now, d.options)
		if len(effects) == 0 {
			effects = more
		} else {
			effects = append(effects, more...)
		}
		if e.Metered {
			pair.InFlight--
		}
		if e.KeyMetered {
			pair.KeyInFlight--
		}
	}
	own = append(make([]any, 0, 22), "step", was.Destination.Step, "key_step", was.Key.Step, "generation", was.Destination.Generation, "key_generation", was.Key.Generation, "reports", reports, "ended", strings.Join(d.ended, " "))
	flag := func(name string, is bool) {
		if is {
			own = append(own, name, "1")
		}
	}
	flag("joined", pair.NewBudget)
	flag("key_joined", pair.KeyBudget)
	if len(effects) == 0 {
		return own, false, nil
	}
	var writes []written
	if !repeated { // swap.lua takes one that was counted before for a repeated swap
		if writes = d.increments(was, pair, effects); writes != nil {
			own = append(own, "counts", "1")
		}
	}
	if writes == nil {
		if writes, err = writesOf(was, effects); err != nil {
			return nil, false, err
		}
	}
	text, err := json.Marshal(writes)
	return append(own, "write", token(newID()), "writes", string(text)), true, err
}

// increments are the writes if all that the events do is to count: then another instance that counts, too, is not in
// the way, but a transition is, or failures that reach the threshold. nil: they do more.
func (d *decision) increments(was, is policy.Pair, effects []policy.Effect) (all []written) {
	// Not if something was lost, or the clock went back: that is repaired first.
	if now := d.reply.now / 1000; len(d.reports) == 0 || was.Lost != nil || was.KeyLost != nil || max(was.Destination.UpdatedAt, was.Key.UpdatedAt) > now {
		return nil
	}
	last := [2]policy.State{was.Destination, was.Key}
	for _, e := range effects {
		of := &last[0]
		if e.OfKey {
			of = &last[1]
		}
		if e.Event != nil || e.State.Failures < of.Failures { // a success has reset them
			return nil
		}
		of.Counts, of.Generation, of.Revision, of.Step, of.UpdatedAt = e.State.Counts, e.State.Generation, e.State.Revision, e.State.Step, e.State.UpdatedAt
		if of.State == "" {
			of.State = policy.Closed
		}
		if *of != e.State {
			return nil
		}
	}
	below := int64(0)
	for _, h := range d.events {
		below = max(below, h.Threshold)
	}
	for i, s := range [...][2]policy.State{{was.Destination, is.Destination}, {was.Key, is.Key}} {
		if s[0].Step == s[1].Step {
			continue
		}
		w := written{Key: i == 1, Add: map[string]int64{"failures": s[1].Failures - s[0].Failures, "wasted": s[1].Wasted - s[0].Wasted}}
		if s[1].LastFailure != s[0].LastFailure {
			w.LastFailure = s[1].LastFailure
		}
		if s[1].State == policy.Closed {
			w.Below = below
		}
		all = append(all, w)
	}
	return all
}

// writesOf are the writes of effects, one after the other.
func writesOf(was policy.Pair, effects []policy.Effect) ([]written, error) {
	writes, last := make([]written, len(effects)), [2]*policy.State{&was.Destination, &was.Key}
	for i := range effects {
		e, before := &effects[i], &last[0]
		if e.OfKey {
			before = &last[1]
		}
		writes[i] = written{Key: e.OfKey, Was: &(*before).Meter, Is: &e.State.Meter, Note: e.Note}
		is := e.State
		if is.Meter = (*before).Meter; is != **before {
			rules := e.State
			rules.Name, rules.Meter = "", policy.Meter{} // the script knows the name
			text, err := json.Marshal(&rules)
			if err != nil {
				return nil, err
			}
			writes[i].Record = string(text)
		}
		*before = &e.State
		if err := writes[i].tell(e); err != nil {
			return nil, err
		}
	}
	return writes, nil
}

// over is the part of an incident's entry that the rules know.
type over struct {
	Started     int64  `json:"started"`
	Cause       string `json:"cause,omitempty"`
	EndedBy     string `json:"ended_by"`
	Reason      string `json:"reason,omitempty"`
	By          string `json:"by,omitempty"`
	Probes      int64  `json:"probes,omitempty"`
	Wasted      int64  `json:"wasted,omitempty"`
	Rescheduled int64  `json:"rescheduled,omitempty"`
	Instances   string `json:"instances,omitempty"`
	Permanent   int64  `json:"permanent,omitempty"`
	Missing     int64  `json:"missing,omitempty"`
}

// tell adds the effect's entries of the history and of the incidents.
func (w *written) tell(e *policy.Effect) error {
	if e.Event == nil {
		return nil
	}
	text, err := json.Marshal(e.Event)
	if err != nil {
		return err
	}
	w.Event = string(text)
	if i := e.Over; i != nil {
		text, err = json.Marshal(over{i.OpenedAt, i.IncidentCause, e.Event.Cause, e.Opened[0], e.Opened[1], i.Probes, i.Wasted, i.Rescheduled, i.Instances, i.Permanent, i.Missing})
		w.Ended, w.Incident = string(text), i.Incident
	}
	return err
}

// pair is what a reply says of a destination and a key, and, see decide in metering.lua, of each permit, and the events of
// both meters.
func (r *reply) pair(key string, parse recordParser) (p policy.Pair, permits []string, emitted [2]string, err error) {
	if err := r.read(parse); err != nil {
		return p, nil, emitted, err
	}
	words := strings.SplitN(r.more, " ", 5)
	if len(words) != 5 {
		return p, nil, emitted, fmt.Errorf("reply says %q of what is in flight", r.more)
	}
	var errs [3]error
	p.InFlight, errs[0] = strconv.ParseInt(words[1], 10, 64)
	p.KeyInFlight, errs[1] = strconv.ParseInt(words[2], 10, 64)
	p.Capacity, errs[2] = strconv.ParseInt(words[3], 10, 64)
	p.Destination, p.Lost = r.record.State, r.record.lost()
	p.Key, p.KeyLost, p.Keyed = r.keyed.State, r.keyed.lost(), key != ""
	p.Version = int64(r.version) //nolint:gosec // µs, as the scripts count it
	emitted[0], emitted[1] = meterEvents(r.more)
	if words[0] != "" {
		permits = strings.Split(words[0][1:], "=")
	}
	return p, permits, emitted, errors.Join(errs[:]...)
}

// meterEvents are the events of the destination's and of the key's meter in what a reply adds, see learn.lua.
func meterEvents(more string) (own, ofKey string) {
	for word := range strings.FieldsSeq(more) {
		if text, ok := strings.CutPrefix(word, "learn:"); ok {
			own = text
		} else if text, ok := strings.CutPrefix(word, "key-learn:"); ok {
			ofKey = text
		}
	}
	return own, ofKey
}

// settle brings the records of statusScript forward to the instant at which it read them.
func (r *reply) settle() {
	for _, of := range [...]*record{&r.record, &r.keyed} {
		of.State = of.At(r.now)
	}
}

// options returns the options for the rules.
func (c caller) options(learn, early bool) policy.Options {
	return policy.Options{
		Cooldown: float64(millis(c.cooldown)), Multiplier: c.multiplier, MaxCooldown: float64(millis(c.maxCooldown)), Jitter: c.jitter,
		Learn: learn, EarlyTests: early, Caller: c.who, Instance: c.id != "",
	}
}

// resolve decides events.
func (c *core) resolve(ctx context.Context, key string, events ...*happened) (reply, error) {
	var asked time.Time
	var reported []inUse
	d := decision{key: key, redis: c.redis, options: c.caller().options(!c.options.NoLearning, !c.options.NoEarlyTests), parse: c.parsed.record, ask: func(s *script, own []any) (reply, error) {
		asked = c.clock.now()
		q := c.question(s, key)
		q.args = append(q.args, own...)
		if s == swapScript {
			q.unmetered(reported...)
			q.caps()
		}
		return q.ask(ctx, c.deadline(ctx))
	}}
	for _, h := range events {
		d.add(h)
		reported = append(reported, h.inUse)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	err := d.make(ctx)
	for _, at := range reported {
		c.inFlight.remove(at.id, at.slotRef)
	}
	if err == nil {
		if d.reply.undecided() && !asked.IsZero() { // nothing was to be stored, and the mirror may be older
			c.observeReply(key, &d.reply, asked, c.clock.now())
		}
		c.wakeHere(key, &d.reply)
	}
	return d.reply, err
}

// queues are the events of each name that wait to be decided: what comes meanwhile is decided together.
type queues struct {
	mu   sync.Mutex
	list map[string][]*happened // a name without events is being decided
}

// apply has an event decided, and returns the reply after it.
func (c *core) apply(ctx context.Context, key string, h *happened) (reply, error) {
	until := c.deadline(ctx)
	if err := ctx.Err(); err != nil || !time.Now().Before(until) {
		return reply{}, cmp.Or(err, context.DeadlineExceeded)
	}
	h.until, h.done = until, make(chan struct{})
	c.queues.mu.Lock()
	waiting, busy := c.queues.list[key]
	if c.queues.list == nil {
		c.queues.list = map[string][]*happened{}
	}
	c.queues.list[key] = append(waiting, h)
	c.queues.mu.Unlock()
	if !busy && !c.spawn(func() { c.decideAll(key) }) {
		c.decideAll(key) // closed: no goroutine may outlive Close
	}
	select {
	case <-h.done:
		return h.reply, h.err
	case <-ctx.Done():
		return reply{}, ctx.Err()
	case <-time.After(time.Until(until)):
		return reply{}, context.DeadlineExceeded
	}
}

// atOnceAtMost bounds how many events are decided together.
const atOnceAtMost = 256

// decideAll decides the events of a name until there are none.
func (c *core) decideAll(key string) {
	for {
		c.queues.mu.Lock()
		batch := c.queues.list[key]
		if len(batch) == 0 {
			delete(c.queues.list, key)
			c.queues.mu.Unlock()
			return
		}
		batch = batch[:min(len(batch), atOnceAtMost)]
		c.queues.list[key] = c.queues.list[key][len(batch):]
		c.queues.mu.Unlock()
		last := slices.MaxFunc(batch, func(a, b *happened) int { return a.until.Compare(b.until) })
		ctx, cancel := context.WithDeadline(context.Background(), last.until)
		r, err := c.resolve(ctx, key, batch...)
		cancel()
		for _, h := range batch {
			h.reply, h.err = r, err
			close(h.done)
		}
	}
}
