package breaker

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

const (
	// healEvery is how many ticks go by, while not CLOSED, between looks at the breaker's
	// own hash: it may have been deleted alone.
	healEvery = 10
	// logEvery limits warnings about one cause.
	logEvery = 30 * time.Second
	// timeEvery is how many ticks go by, while nothing changes, between reads of the time.
	timeEvery = 5
	// wholeEvery is the time, while not CLOSED, between full reads of the snapshot, which
	// find losses that later writes have hidden.
	wholeEvery = time.Minute
	// snapshotPage is how many changes one read brings.
	snapshotPage = 200
)

// task is work that a core does in a goroutine of its own, which ends with it.
type task uint8

const (
	taskRefresh task = 1 << iota // read what has changed
	taskJoins                    // report calls in flight that are not metered
)

// tasks runs the tasks of a core, one at a time.
type tasks struct {
	mu      sync.Mutex
	wanted  task
	running bool
	ctx     context.Context //nolint:containedctx // ends with Close; nil before the start
}

func (t *tasks) start(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx = ctx
}

// wake schedules work of a started core.
func (c *reader) wake(what task) {
	t := &c.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		return
	}
	t.wanted |= what
	if !t.running {
		t.running = c.spawn(c.runTasks)
	}
}

func (c *reader) runTasks() {
	t := &c.tasks
	for {
		t.mu.Lock()
		what := t.wanted
		t.wanted = 0
		if what == 0 || t.ctx.Err() != nil {
			t.running = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		if what&taskJoins != 0 {
			c.sendJoins(t.ctx)
		}
		if what&taskRefresh != 0 {
			c.refreshNow(t.ctx)
		}
	}
}

// tick is called once per RefreshInterval. It returns true if the core reads its state by
// itself this time; otherwise the link looks whether it has changed.
func (c *reader) tick() bool {
	c.expirePermits()
	n := c.ticks.Add(1)
	v := c.view.Load()
	periodic := (n%timeEvery == 0 || n%healEvery == 0) && c.waits()
	if periodic || !v.known || v.behind || c.failed.Load() || c.whole.Load() && c.waits() ||
		c.anyLocal() || c.joins.any() || c.owed.any() || c.tally.any() {
		c.wake(taskRefresh)
		return true
	}
	return false
}

// stamped processes the destination's stamp, or the error of its read.
func (c *reader) stamped(ctx context.Context, stamp string, err error) {
	c.reached(ctx, err)
	if err == nil && stamp != *c.stamp.Load() && !c.capacityOnly(stamp) {
		c.wake(taskRefresh)
	} else if ctx.Err() == nil {
		c.unreadable.report(err)
	}
}

// capacityOnly reports whether a stamp differs from the known one in the capacity alone, and
// takes that: when many instances start, each would read the snapshot for each other.
func (c *reader) capacityOnly(stamp string) bool {
	known := c.stamp.Load()
	was, is := strings.Fields(*known), strings.Fields(stamp) // see snapshot.stamp
	if len(was) != 3 || len(is) != 3 || was[0] != is[0] || was[2] != is[2] {
		return false
	}
	capacity, err := strconv.ParseInt(is[1], 10, 64)
	if err != nil || !c.stamp.CompareAndSwap(known, &stamp) {
		return false
	}
	c.capacity.Store(capacity)
	return true
}

// refreshNow reads changes, and registers the instance where Redis has lost it.
func (c *reader) refreshNow(ctx context.Context) {
	n := c.ticks.Load()
	if now := time.Now(); now.Sub(c.wholeAt) >= wholeEvery {
		c.wholeAt = now
		c.whole.Store(true)
	}
	lost, err := c.readChanges(ctx, n%timeEvery == 0)
	if err == nil && lost {
		err = c.heal(ctx, "")
	}
	if err == nil {
		err = c.healSome(ctx, n)
	}
	if err == nil && lost {
		err = c.enroll(ctx)
	}
	if err == nil {
		c.sendOwed(ctx)
		c.sendJoins(ctx) // what could not be sent at once
		c.flushRescheduled(ctx)
	}
	if ctx.Err() == nil {
		c.unreadable.report(err)
	}
	c.failed.Store(err != nil)
}

// healSome has the rules look now and then at breakers that are not CLOSED; they repair their hashes, as a single one
// may have been deleted.
func (c *reader) healSome(ctx context.Context, n uint64) error {
	if v := c.view.Load(); v.behind || v.state != Closed && n%healEvery == 0 {
		if err := c.heal(ctx, ""); err != nil {
			return err
		}
	}
	if n%healEvery == 0 && c.keys.n.Load() > 0 {
		for key, v := range c.keys.all() { // in random order: another one each time
			if v.state != Closed {
				return c.heal(ctx, key)
			}
		}
	}
	return nil
}

func (c *reader) heal(ctx context.Context, key string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	_, err := c.apply(ctx, key, &happened{Event: policy.Event{Kind: policy.Advanced}})
	return err
}

// receive processes a published message.
func (c *reader) receive(payload string) {
	var m message
	var changed record
	head, text, _ := strings.Cut(payload, "\n")
	err := parseAs(head, &m)
	if err == nil && text != "" {
		err = c.parsed.record(text, &changed)
	}
	if err != nil || m.Origin == "" {
		return // not one of ours
	}
	key, ours := c.keyOf(cmp.Or(changed.Name, m.Name))
	if !ours {
		return
	}
	switch c.origins.check(m.Origin) {
	case ownOrigin:
	case newOrigin: // what this database had may have been lost
		c.wake(taskRefresh)
		return
	case otherOrigin:
		return
	}
	if m.Wake != nil {
		if slices.Contains(m.Wake, c.id) {
			c.wakeRefused(key)
		}
		return
	}
	received := c.clock.now()
	if changed.version() > c.synced.Load() {
		c.observe(key, observation{version: changed.version(), now: m.Now, record: changed, received: received})
	}
	c.raise(m.Version, received)
	if !c.events.message(&m) {
		c.wake(taskRefresh)
	}
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// outage logs the first failure, now and then the following ones, and the recovery.
type outage struct {
	c    *core
	text string // of the warning

	mu     sync.Mutex
	logged time.Time // of the last warning; zero without failures
	since  time.Time
}

func (t *outage) report(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && !t.logged.IsZero():
		t.c.log.Info("breaker is in touch with Redis again", "breaker", t.c.place.name, "after", now.Sub(t.since).Round(time.Millisecond).String())
		t.logged = time.Time{}
	case err != nil && t.logged.IsZero():
		t.since = now
		fallthrough
	case err != nil && now.Sub(t.logged) >= logEvery:
		t.c.log.Warn(t.text, "breaker", t.c.place.name, "error", err) //nolint:sloglint // one of two constants
		t.logged = now
	}
}
