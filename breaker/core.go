package breaker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// core is one instance's part in the breakers of a destination and its keys. Their Breakers share it. Each part has
// its own state:
//
//	mirror   the views: what the instance knows of the breakers
//	reader   reads what has changed, and has lost data repaired
//	member   registers the instance, and says what it has in flight
//	granter  grants permits, by the views or by asking Redis
//
// and the core has what reports and decisions need.
type core struct {
	mirror
	reader
	member
	granter

	options  Options
	rdb      redis.UniversalClient
	place    place // of the destination's own breaker
	id       string
	clock    clock
	redis    *redisClock
	log      *slog.Logger
	events   *events
	preamble preamble
	parsed   lastRecords
	timers   sync.Pool // of exchanges: most are stopped
	link     *link     // nil before the start; then constant

	down      atomic.Bool
	awayUntil atomic.Int64 // unix ns, see away
	owners    owners
	owed      owed
	queues    queues
	tally     tally

	stop    context.CancelFunc // ends what runs in the background
	work    sync.WaitGroup
	workMu  sync.Mutex // orders work.Add before work.Wait
	stopped bool
}

// mirror is what an instance knows of the breakers.
type mirror struct {
	*core
	view      atomic.Pointer[view] // of the destination's own breaker
	keys      keyViews
	mu        sync.Mutex                    // one writer of views at a time
	latest    atomic.Uint64                 // highest version ever seen
	latestAt  time.Time                     // when that was received; guarded by mu
	slots     atomic.Uint64                 // how many times calls refused because of a cap were woken
	anyChange atomic.Pointer[chan struct{}] // closed by the next change of a key's view
}

// reader reads what has changed in Redis.
type reader struct {
	*core
	tasks                    tasks
	synced                   atomic.Uint64 // version up to which all has been read
	origins                  origins
	stamp                    atomic.Pointer[string] // of the last read
	ticks                    atomic.Uint64
	failed                   atomic.Bool // the last refresh failed
	whole                    atomic.Bool // the next read of the snapshot is to be of all
	wholeAt                  time.Time   // of the last read of all; guarded by tasks: one refresh at a time
	unreadable, unsubscribed outage
}

// member is this instance as Redis knows it.
type member struct {
	*core
	inFlight      *inFlight
	joins         joins
	enrolled      atomic.Bool  // Redis has registered this instance,
	enrolledAs    atomic.Int64 // with this capacity
	capacity      atomic.Int64 // calls that all instances make at once, as registered
	longest       atomic.Int64 // of the leases that were asked for; ns
	relisting     atomic.Bool  // register.lua has not repaired all of the list of changes
	registerAt    atomic.Int64 // when the next registration is due, unix ns
	registerPause atomic.Int64 // before it, after an error; ns
}

// granter grants permits.
type granter struct {
	*core
	rate, keyRate declared
	named         []namedLimit
	spread        bool       // over a Redis Cluster: named limits have slots of their own
	asking        keyMutex   // one goroutine at a time asks Redis about a name
	waiting       *waitLines // callers of Wait
	slotsHeld     atomic.Int64
}

// clock is the clock of a core; tests and simulations replace it.
type clock struct {
	now    func() time.Time // local
	redis  func() string    // "" lets the scripts read Redis TIME
	random func() float64   // 0 to 1: spreads cooldowns, and hides nothing
}

var realClock = clock{now: time.Now, redis: func() string { return "" }, random: rand.Float64}

// newCore returns a core without state, which start starts.
func newCore(rdb redis.UniversalClient, o Options, c clock) (*core, error) {
	o = o.withDefaults()
	if err := errors.Join(o.validate(), validClient(rdb)); err != nil {
		return nil, err
	}
	if o.Instance == "" {
		o.Instance = InstanceName("breaker " + o.Destination)
	}
	if o.Disabled {
		o.IgnoreHints, o.KeyRate, o.FleetConcurrency, o.KeyConcurrency = true, nil, 0, 0
		if !o.OperatorRate {
			o.Rate = nil
		}
		o.Limits = slices.Clone(o.Limits)
		if !slices.ContainsFunc(o.Limits, func(l NamedLimit) bool { return l.OperatorRate }) {
			o.Limits = nil
		}
		for i := range o.Limits { // others limit nothing
			if o.Limits[i].Concurrency = 0; !o.Limits[i].OperatorRate {
				o.Limits[i].Rate = nil
			}
		}
	}
	rate, err := declare(o.Rate)
	keyRate, keyErr := declare(o.KeyRate)
	named, namedErr := nameLimits(Namespace(o.Namespace), o.Limits, c.now())
	if err := errors.Join(err, keyErr, namedErr); err != nil {
		return nil, err
	}
	k := &core{
		options: o, rdb: rdb, place: Namespace(o.Namespace).placeOf(o.Destination, ""), id: token(newID()), clock: c, log: o.Logger, stop: func() {},
	}
	k.mirror.core, k.reader.core, k.member.core, k.granter.core = k, k, k, k
	k.redis = newRedisClock(c.now())
	k.inFlight, k.joins = newInFlight(k.redis.born), joins{names: map[string]bool{}}
	k.rate, k.keyRate, k.named, k.waiting = rate, keyRate, named, &waitLines{of: map[string][]*waiter{}}
	k.spread = redispipe.IsCluster(rdb)
	k.wholeAt = time.Now()
	for _, key := range k.place.keys {
		k.preamble.keys = append(k.preamble.keys, key)
	}
	k.preamble.argv = k.place.args(caller{
		who: o.Instance, id: k.id, cooldown: o.Cooldown, multiplier: o.CooldownMultiplier, maxCooldown: o.MaxCooldown,
	}, nil)
	k.unreadable = outage{c: k, text: "breaker cannot read its state from Redis; the last known state holds"}
	k.unsubscribed = outage{c: k, text: "breaker has lost its subscription; changes are seen with the next read"}
	k.stamp.Store(new(string))
	k.events = newEvents(o.Logger, k.onEvent)
	first := &view{changed: make(chan struct{})}
	first.record.Name = k.place.name
	status := first.record.status()
	first.status = &status
	k.view.Store(first)
	changed := make(chan struct{})
	k.anyChange.Store(&changed)
	return k, nil
}

// start reads the state, and starts the refresh.
func (c *core) start(ctx context.Context) {
	joinLink(c)
	err := c.enroll(ctx)
	if err == nil {
		err = c.readSnapshot(ctx)
	}
	if err != nil {
		c.log.Warn("breaker cannot ask Redis, and keeps trying", "breaker", c.place.name, "error", err)
	}
	background, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.tasks.start(background)
	c.events.background(background, c.spawn)
	c.link.connect(c)
}

// close stops the background work and waits for it.
func (c *core) close() {
	c.workMu.Lock()
	already := c.stopped
	c.stopped = true
	c.workMu.Unlock()
	c.stop()
	if c.link != nil && !already {
		c.link.leave(c)
	}

	c.mu.Lock()
	current := c.view.Load()
	if !current.closed {
		last := *current
		last.closed, last.known = true, false
		c.replace(current, &last)
		close(last.changed)
		close(*c.anyChange.Load())
	}
	c.mu.Unlock()

	c.work.Wait()
	if !already && c.enrolled.Load() && !c.down.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		c.sendOwed(ctx)
		c.flushRescheduled(ctx)
		_ = c.register(ctx, 0) // its registration ends by itself, too
	}
}

// hasStopped reports whether close was called.
func (c *core) hasStopped() bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	return c.stopped
}

// leaveTimeout bounds the last commands of a closed core.
const leaveTimeout = 500 * time.Millisecond

// guard calls a function of the options, and logs if it panics.
func (c *core) guard(option string, call func()) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a function of the breaker's options panicked", "breaker", c.place.name, "option", option,
				"panic", r, "stack", string(debug.Stack()))
		}
	}()
	call()
}

// spawn runs f in the background, unless close was called; close waits for it.
func (c *core) spawn(f func()) bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.stopped {
		return false
	}
	c.work.Go(f)
	return true
}

// slowest is how long a Redis that is taken to be away has not answered for at least.
const slowest = 200 * time.Millisecond

// errAway is the error of a question that is not asked.
var errAway = errors.New("no answer from Redis to the last question; it is asked again within a second")

// away reports whether Redis is known to be away: it did not answer a script within the last
// RefreshInterval, or second, nor anything since. Callers do not wait for it then.
func (c *core) away() bool {
	return c.down.Load() && time.Now().UnixNano() < c.awayUntil.Load()
}

// reached records whether Redis was available.
func (c *core) reached(ctx context.Context, err error) {
	switch {
	case err == nil:
		if c.down.Load() && c.down.Swap(false) && c.owed.any() {
			c.wake(taskRefresh) // slots are free sooner
		}
	case !errors.Is(ctx.Err(), context.Canceled):
		c.down.Store(true)
	}
}

// refused reports whether Redis answered with an error: the script did not run.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func (c *core) caller() caller {
	jitter := max(0, c.options.CooldownJitter)
	return caller{
		now: c.clock.redis(), who: c.options.Instance, id: c.id, cooldown: c.options.Cooldown,
		multiplier: c.options.CooldownMultiplier, maxCooldown: c.options.MaxCooldown,
		jitter: jitter * c.clock.random(),
	}
}

// name returns the name of the breaker of a key; of the destination for "".
func (c *core) name(key string) string {
	if key == "" {
		return c.place.name
	}
	return c.place.name + "/" + key
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, DefaultTimeout)
}

func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// deadline is until when a caller waits for Redis.
func (c *core) deadline(ctx context.Context) time.Time {
	if until, ok := ctx.Deadline(); ok {
		return until
	}
	return time.Now().Add(c.options.Timeout)
}

func (c *core) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, c.options.Timeout)
}

// newID returns the id of a permit. It has to be unique, not secret.
func newID() uint64 {
	return rand.Uint64() //nolint:gosec // see above
}

// token is a permit's id as the scripts know it.
func token(id uint64) string {
	return strconv.FormatUint(id, 16)
}

func tokens(ids []uint64) string {
	var text []byte
	for _, id := range ids {
		text = append(strconv.AppendUint(text, id, 16), ' ')
	}
	return string(text)
}
