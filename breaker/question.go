package breaker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// question is one run of a script by an instance. A metered call asks two, so a question is one
// allocation: the arguments point to its numbers and texts.
type question struct {
	c       *core
	script  *script
	key     string
	permits []uint64 // to release if the script may have run and its reply was lost
	keyOnly bool     // their key's part alone
	lines   []line   // their charges on named limits

	repeatable bool // the script may run twice: at worst it charges twice

	args    []any // of EVALSHA
	numbers []int64
	texts   []string

	argsHere    [96]any // most need no more
	numbersHere [20]int64
	textsHere   [16]string
	permitHere  [1]uint64
}

// preamble is what all questions of a core begin with, by key or without.
type preamble struct{ keys, argv []any }

// Places in ARGV of what differs between questions.
const (
	argNow = 0
	argKey = 2
)

// question returns one without what the script itself takes.
func (c *core) question(s *script, key string) *question {
	q := &question{c: c, script: s, key: key}
	q.args, q.numbers, q.texts = q.argsHere[:0], q.numbersHere[:0], q.textsHere[:0]
	q.args = append(append(q.args, s.evalsha[:]...), len(c.preamble.keys))
	q.args = append(q.args, c.preamble.keys...)
	if key != "" {
		q.args[2] = len(c.preamble.keys) + len(keyPlaces)
		var names strings.Builder
		names.Grow(len(keyPlaces) * (len(c.place.prefix) + len(keyPlaces[1]) + 2 + len(key)))
		for _, what := range keyPlaces {
			names.WriteString(c.place.prefix)
			names.WriteString(what)
			names.WriteString(key)
		}
		all := names.String()
		for _, what := range keyPlaces {
			n := len(c.place.prefix) + len(what) + len(key)
			q.point(all[:n])
			all = all[n:]
		}
	}
	argv := len(q.args)
	q.args = append(q.args, c.preamble.argv...)
	if now := c.clock.redis(); now != "" {
		q.args[argv+argNow] = now
	}
	if key != "" {
		q.args[argv+argKey] = &q.key
	}
	if s != rescheduledScript { // which counts no calls in flight
		steady, by := c.redis.watch(c.clock.now())
		q.number("steady", steady)
		q.number("by", by)
	}
	return q
}

func (q *question) point(text string) {
	q.texts = append(q.texts, text)
	q.args = append(q.args, &q.texts[len(q.texts)-1])
}

// text, number and flag add a value by its name, as named.lua takes it, but not "", 0 or false. A constant name costs
// nothing.
func (q *question) text(name any, value string) {
	if value != "" {
		q.args = append(q.args, name)
		q.point(value)
	}
}

func (q *question) number(name any, value int64) {
	if value != 0 {
		q.count(name, value)
	}
}

// count adds a number that may be 0.
func (q *question) count(name any, value int64) {
	q.numbers = append(q.numbers, value)
	q.args = append(q.args, name, &q.numbers[len(q.numbers)-1])
}

func (q *question) flag(name any, value bool) {
	if value {
		q.args = append(q.args, name, "1")
	}
}

// ask runs the script, and observes its reply. It waits until ctx or the time ends.
func (q *question) ask(ctx context.Context, until time.Time) (reply, error) {
	return await(ctx, until, q.c, q)
}

// answer returns the reply. ctx is the caller's context, and command the context for the command.
func (q *question) answer(ctx, command context.Context) (reply, error) {
	c, asked, started := q.c, time.Now(), q.c.clock.now()
	text, err := q.script.process(command, c.rdb, q.args)
	if q.repeatable && err != nil && !refused(err) && time.Since(asked) < slowest && command.Err() == nil {
		text, err = q.script.process(command, c.rdb, q.args) // the connection broke, and its reply is lost
	}
	c.reached(ctx, err)
	if err != nil && !refused(err) && time.Since(asked) >= slowest && !errors.Is(ctx.Err(), context.Canceled) {
		c.awayUntil.Store(time.Now().Add(min(c.options.RefreshInterval, time.Second)).UnixNano())
	}
	if err != nil {
		return reply{}, err
	}
	r, err := parseReply(text, c.parsed.record)
	if err != nil {
		return reply{}, err
	}
	received := c.clock.now()
	c.redis.observe(r.now, started, received)
	if !r.undecided() {
		c.observeReply(q.key, &r, started, received)
	}
	return r, nil
}

// lost releases the permits that may have been granted although the answer was lost.
func (q *question) lost() {
	for _, id := range q.permits {
		q.c.releaseLater(id, q.key, q.keyOnly, q.lines)
	}
}

// answerer runs commands for await. lost is called when they may have run without their answer being
// returned.
type answerer[T any] interface {
	answer(ctx, command context.Context) (T, error)
	lost()
}

// answerFunc is one without anything to do when the answer is lost.
type answerFunc[T any] func(ctx, command context.Context) (T, error)

func (f answerFunc[T]) answer(ctx, command context.Context) (T, error) { return f(ctx, command) }
func (answerFunc[T]) lost()                                            {}

// exchange is a command and the wait for it. It is the context of the command, which ends with the
// exchange: with the answer, or when the caller's context or the time ends.
type exchange[T any] struct {
	context.Context //nolint:containedctx // the caller's
	until           time.Time
	done            chan struct{}
	over            atomic.Bool // set by the side that closes done

	ask   answerer[T]
	value T
	err   error // of ask, or why the caller has gone
}

func (e *exchange[T]) Deadline() (time.Time, bool) { return e.until, true }
func (e *exchange[T]) Done() <-chan struct{}       { return e.done }

func (e *exchange[T]) Err() error {
	select {
	case <-e.done:
		if e.err != nil {
			return e.err
		}
		return context.Canceled
	default:
		return nil
	}
}

func (e *exchange[T]) run(command context.Context) {
	value, err := e.ask.answer(e.Context, command)
	lost := err != nil && !refused(err)
	if e.over.CompareAndSwap(false, true) {
		e.value, e.err = value, err
		close(e.done)
	} else {
		lost = !refused(err)
	}
	if lost {
		e.ask.lost()
	}
}

// await returns the answer, or returns when ctx or the time ends, even if the client does not.
func await[T any](ctx context.Context, until time.Time, c *core, ask answerer[T]) (T, error) {
	e := &exchange[T]{Context: ctx, until: until, done: make(chan struct{}), ask: ask}
	d, own := ctx.Deadline()
	if own = own && !d.After(until); own {
		e.until = d
	}
	if !c.spawn(func() { e.run(e) }) {
		command, cancel := context.WithDeadline(ctx, e.until)
		defer cancel()
		e.run(command) // closed: no goroutine may outlive Close
		return e.value, e.err
	}
	var over <-chan time.Time
	if !own { // else ctx has ended as well then
		timer, ok := c.timers.Get().(*time.Timer)
		if ok {
			timer.Reset(time.Until(e.until))
		} else {
			timer = time.NewTimer(time.Until(e.until))
		}
		defer func() {
			timer.Stop()
			c.timers.Put(timer)
		}()
		over = timer.C
	}
	err := context.DeadlineExceeded
	select {
	case <-e.done:
		return e.value, e.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-over:
	}
	if e.over.CompareAndSwap(false, true) {
		e.err = err
		close(e.done)
		var none T
		return none, err
	}
	<-e.done
	return e.value, e.err
}

// lastRecords are the records of the last replies and messages: while calls are metered, most replies have the same, and an
// instance gets the record of each change that it makes twice.
type lastRecords struct {
	mu sync.Mutex
	of map[string]record // by text
}

// maxLastRecords bounds lastRecords.
const maxLastRecords = 16

func (l *lastRecords) record(text string, into *record) error {
	l.mu.Lock()
	known, ok := l.of[text]
	l.mu.Unlock()
	if ok {
		*into = known
		return nil
	}
	if err := parseRecord(text, into); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]record{}
	} else if len(l.of) >= maxLastRecords {
		clear(l.of)
	}
	l.of[text] = *into
	return nil
}
