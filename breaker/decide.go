package breaker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
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
			return d.reply.read(parseRecord)
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
	Key   bool     `json:"key,omitempty"`
	Set   settings `json:"set"`
	Event string   `json:"event,omitempty"`
	Ended string   `json:"ended,omitempty"`
	Note  bool     `json:"note,omitempty"`

	Incident string `json:"incident,omitempty"` // the one that is over, which may have been lost

	Add   map[string]int64 `json:"add,omitempty"`   // to fields
	Below int64            `json:"below,omitempty"` // failures stay
}

// next applies the events to the records of the reply, and returns what swap.lua takes.
func (d *decision) next(reports string) (own []any, changed bool, err error) {
	pair, known, emitted, err := d.reply.pair(d.key)
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
		effects = append(effects, more...)
		if e.Metered {
			pair.InFlight--
		}
		if e.KeyMetered {
			pair.KeyInFlight--
		}
	}
	own = []any{"step", was.Destination.Step, "key_step", was.Key.Step, "generation", was.Destination.Generation, "key_generation", was.Key.Generation, "reports", reports, "ended", strings.Join(d.ended, " ")}
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
	last := [2]policy.State{was.Destination, was.Key}
	writes := make([]written, len(effects))
	for i, e := range effects {
		of := 0
		if e.OfKey {
			of = 1
		}
		if writes[i], err = writtenAs(&e, last[of]); err != nil {
			return nil, false, err
		}
		last[of] = e.State
	}
	if !repeated { // swap.lua takes one that was counted before for a repeated swap
		if add := d.increments(was, pair, effects, writes); add != nil {
			writes = add
			own = append(own, "counts", "1")
		}
	}
	text, err := json.Marshal(writes)
	return append(own, "write", token(newID()), "writes", string(text)), true, err
}

// increments are the writes if all that the events do is to count: then another instance that counts, too, is not in
// the way, but a transition is, or failures that reach the threshold. nil: they do more.
func (d *decision) increments(was, is policy.Pair, effects []policy.Effect, writes []written) []written {
	// Not if something was lost, or the clock went back: that is repaired first.
	if now := d.reply.now / 1000; len(d.reports) == 0 || was.Lost != nil || was.KeyLost != nil || max(was.Destination.UpdatedAt, was.Key.UpdatedAt) > now {
		return nil
	}
	var add [2]written
	failures := [2]int64{was.Destination.Failures, was.Key.Failures}
	for i, e := range effects {
		of := 0
		if e.OfKey {
			of = 1
		}
		if e.State.Failures < failures[of] {
			return nil // a success has reset them
		}
		failures[of] = e.State.Failures
		w := &add[of]
		w.Key, w.Set = e.OfKey, settings{}
		for _, f := range writes[i].Set {
			switch f.name {
			case "failures", "wasted", "last_failure", "instances", "updated_at":
			default:
				return nil
			}
		}
		if e.Event != nil {
			return nil
		}
	}
	var all []written
	for i, s := range [...][2]policy.State{{was.Destination, is.Destination}, {was.Key, is.Key}} {
		if w := add[i]; w.Set != nil {
			w.Add = map[string]int64{"failures": s[1].Failures - s[0].Failures, "wasted": s[1].Wasted - s[0].Wasted}
			for _, h := range d.events {
				w.Below = max(w.Below, h.Threshold)
			}
			if s[1].LastFailure != s[0].LastFailure {
				w.Set = settings{{name: "last_failure", number: s[1].LastFailure}}
			}
			if s[1].State != policy.Closed {
				w.Below = 0
			}
			all = append(all, w)
		}
	}
	return all
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

func writtenAs(e *policy.Effect, was policy.State) (written, error) {
	w := written{Key: e.OfKey, Set: differences(was, e.State), Note: e.Note}
	if e.Event == nil {
		return w, nil
	}
	text, err := json.Marshal(e.Event)
	if err != nil {
		return w, err
	}
	w.Event = string(text)
	if i := e.Incident; i != nil {
		text, err = json.Marshal(over{i.OpenedAt, i.IncidentCause, e.Event.Cause, e.Opened[0], e.Opened[1], i.Probes, i.Wasted, i.Rescheduled, i.Instances, i.Permanent, i.Missing})
		w.Ended, w.Incident = string(text), i.Incident
	}
	return w, err
}

// field is one of a policy.State.
type field struct {
	name  string
	index []int
}

// fields are all that swap.lua takes from the rules; it sets the others itself.
var fields = sync.OnceValue(func() (all []field) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[policy.State]()) {
		switch name := f.Tag.Get("json"); name {
		case "", "name", "generation", "revision", "step", "incident":
		default:
			all = append(all, field{name, f.Index})
		}
	}
	return all
})

// setting is a field and its value. Settings are a JSON object whose values are all texts, because Lua's numbers have
// 14 digits.
type setting struct {
	name, text string
	number     int64
	isText     bool
}

type settings []setting

// MarshalJSON returns the object.
func (s settings) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 32*len(s)+2), '{')
	for i, f := range s {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(strconv.AppendQuote(out, f.name), ':')
		if !f.isText {
			out = append(strconv.AppendInt(append(out, '"'), f.number, 10), '"')
			continue
		}
		text, err := json.Marshal(f.text)
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	return append(out, '}'), nil
}

// differences are the fields that differ, as Redis keeps them.
func differences(was, is policy.State) settings {
	set := make(settings, 0, 16)
	from, to := reflect.ValueOf(was), reflect.ValueOf(is)
	for _, f := range fields() {
		a, b := from.FieldByIndex(f.index), to.FieldByIndex(f.index)
		switch {
		case a.Equal(b):
		case b.Kind() == reflect.String:
			set = append(set, setting{name: f.name, text: b.String(), isText: true})
		default:
			set = append(set, setting{name: f.name, number: b.Int()})
		}
	}
	return set
}

// wholeRecord is a record as the rules need it.
type wholeRecord struct {
	policy.State
	Lost *policy.State `json:"lost"`
}

// pair is what a reply says of a destination and a key, and, see decide in metering.lua, of each permit, and the events of
// both meters.
func (r *reply) pair(key string) (p policy.Pair, permits []string, emitted [2]string, err error) {
	var records [2]wholeRecord
	for i, text := range r.whole {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &records[i]); err != nil {
			return p, nil, emitted, fmt.Errorf("record: %w", err)
		}
	}
	words := strings.SplitN(r.more, " ", 5)
	if len(words) != 5 {
		return p, nil, emitted, fmt.Errorf("reply says %q of what is in flight", r.more)
	}
	var errs [3]error
	p.InFlight, errs[0] = strconv.ParseInt(words[1], 10, 64)
	p.KeyInFlight, errs[1] = strconv.ParseInt(words[2], 10, 64)
	p.Capacity, errs[2] = strconv.ParseInt(words[3], 10, 64)
	p.Destination, p.Lost = records[0].State, records[0].Lost
	p.Key, p.KeyLost, p.Keyed = records[1].State, records[1].Lost, key != ""
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
func (r *reply) settle() error {
	for i, to := range [...]*record{&r.record, &r.keyed} {
		if r.whole[i] == "" {
			continue
		}
		var s policy.State
		if err := json.Unmarshal([]byte(r.whole[i]), &s); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		settled, err := recordOf(s, r.now)
		if err != nil {
			return err
		}
		settled.InFlight, settled.Cap = to.InFlight, to.Cap
		*to = settled
	}
	return nil
}

// recordOf is what readers see of a breaker as of an instant.
func recordOf(s policy.State, now int64) (r record, err error) {
	text, err := json.Marshal(s.At(now))
	if err == nil {
		err = parseRecord(string(text), &r)
	}
	return r, err
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
	d := decision{key: key, redis: c.redis, options: c.caller().options(!c.options.NoLearning, !c.options.NoEarlyTests), ask: func(s *script, own []any) (reply, error) {
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
