package breaker

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

const (
	// A subscription that has been silent for quiet is pinged, for dead renewed: a
	// connection can die without an error.
	quiet = 10 * time.Second
	dead  = 30 * time.Second
	// A broken subscription is renewed after retryFirst, then after longer pauses, up to
	// retrySlowest.
	retryFirst, retrySlowest = 50 * time.Millisecond, time.Second
)

// link connects the Breakers of a process that have the same client and RefreshInterval:
// one connection for all subscriptions, and one read per interval that finds which of them
// have changed. The first Breaker starts it, the last one ends it.
type link struct {
	of   linkOf
	id   string // also the id of the first core of each destination
	only bool   // not shared: the client cannot be compared
	stop context.CancelFunc
	ctx  context.Context //nolint:containedctx // of the goroutines that stop ends
	work sync.WaitGroup

	users   int             // guarded by linksMu
	started bool            // guarded by linksMu
	named   map[string]bool // channels with a core that has the link's id; guarded by linksMu

	warnedAt time.Time // that a core is not registered; used by keepFresh alone

	mu         sync.RWMutex
	cores      map[string][]*core // by channel
	added      []string           // channels that are to be subscribed
	changing   sync.Mutex         // of the channels: one goroutine at a time
	pubsub     atomic.Pointer[redis.PubSub]
	receivedAt atomic.Int64  // when the subscription last received something, unix ns
	failed     atomic.Bool   // the subscription
	confirmed  chan struct{} // gets a value after a subscription: what was published before is lost
}

type linkOf struct {
	rdb       redis.UniversalClient
	interval  time.Duration
	namespace Namespace
}

var (
	linksMu sync.Mutex
	links   = map[linkOf]*link{}
)

// joinLink gives c the link of its client, which it is to leave.
func joinLink(c *core) {
	linksMu.Lock()
	defer linksMu.Unlock()
	of := linkOf{c.rdb, c.options.RefreshInterval, cmp.Or(c.place.namespace, DefaultNamespace)}
	only := !reflect.ValueOf(c.rdb).Comparable()
	var l *link
	if !only {
		l = links[of]
	}
	if l == nil {
		l = &link{of: of, id: c.id, only: only, named: map[string]bool{}, cores: map[string][]*core{}, confirmed: make(chan struct{}, 1)}
		l.ctx, l.stop = context.WithCancel(context.Background())
	}
	if !only {
		links[of] = l
	}
	l.users++
	c.link = l
	if !l.named[c.place.channel] {
		l.named[c.place.channel] = true
		c.id = l.id
	}
}

// connect begins to call c, which has joined.
func (l *link) connect(c *core) {
	linksMu.Lock()
	defer linksMu.Unlock()
	l.add(c)
	if !l.started {
		l.started = true
		l.work.Go(func() { l.keepFresh(l.ctx) })
		l.work.Go(func() { l.subscribe(l.ctx) })
	}
}

func (l *link) add(c *core) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cores[c.place.channel] = append(l.cores[c.place.channel], c)
	if l.pubsub.Load() == nil {
		return
	}
	l.added = append(l.added, c.place.channel)
	if len(l.added) == 1 {
		l.work.Go(l.subscribeAdded)
	}
}

// subscribeAdded subscribes the channels that were added meanwhile, by one command.
func (l *link) subscribeAdded() {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.mu.Lock()
	channels, pubsub := l.added, l.pubsub.Load()
	l.added = nil
	l.mu.Unlock()
	_ = pubsub.Subscribe(l.ctx, channels...) // an error is Receive's, too
}

// leave removes c. Afterwards the link calls it no more.
func (l *link) leave(c *core) {
	linksMu.Lock()
	l.mu.Lock()
	channel := c.place.channel
	if l.cores[channel] = slices.DeleteFunc(l.cores[channel], func(other *core) bool { return other == c }); len(l.cores[channel]) == 0 {
		delete(l.cores, channel)
	}
	l.mu.Unlock()
	l.users--
	last := l.users == 0
	if last && !l.only {
		delete(links, l.of)
	}
	linksMu.Unlock()
	if last {
		l.stop()
		l.work.Wait()
		return
	}
	l.unsubscribe(channel)
}

// unsubscribe ends the subscription to a channel unless a core of it has been added
// meanwhile. Later messages are ignored.
func (l *link) unsubscribe(channel string) {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.mu.RLock()
	wanted := len(l.cores[channel]) > 0
	l.mu.RUnlock()
	if pubsub := l.pubsub.Load(); !wanted && pubsub != nil {
		ctx, cancel := context.WithTimeout(l.ctx, leaveTimeout)
		defer cancel()
		_ = pubsub.Unsubscribe(ctx, channel)
	}
}

// all are the cores. l.mu is held.
func (l *link) all() iter.Seq[*core] {
	return func(yield func(*core) bool) {
		for _, cores := range l.cores {
			for _, c := range cores {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// registerEvery is the time between two registrations of a core: with many of them longer.
func (l *link) registerEvery() time.Duration {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return min(max(registerEvery, registerShare*time.Duration(len(l.cores))), registerSlowest)
}

// keepFresh has the cores read changes, once per interval.
func (l *link) keepFresh(ctx context.Context) {
	ticker := time.Tick(l.of.interval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.confirmed:
			l.mu.RLock()
			all := slices.Collect(l.all())
			l.mu.RUnlock()
			l.stamped(ctx, all, l.readStamps(ctx, all))
			continue
		case <-ticker:
		}
		quiet, due := l.tick()
		l.stamped(ctx, quiet, l.readStamps(ctx, quiet))
		l.checkSubscription(ctx)
		l.register(ctx, due)
	}
}

// tick returns the cores that do not read their state by themselves this time, and the cores
// that are due to be registered, registerAtOnce at most.
func (l *link) tick() (quiet, due []*core) {
	l.mu.RLock() // leave waits
	defer l.mu.RUnlock()
	now := time.Now().UnixNano()
	for c := range l.all() {
		if !c.tick() {
			quiet = append(quiet, c)
		}
		if now >= c.registerAt.Load() && len(due) < registerAtOnce {
			due = append(due, c)
		}
	}
	return quiet, due
}

// stamped hands each core its stamp. A core that has left meanwhile is passed over.
func (l *link) stamped(ctx context.Context, cores []*core, stamps []stamp) {
	l.mu.RLock() // leave waits
	defer l.mu.RUnlock()
	for i, c := range cores {
		if slices.Contains(l.cores[c.place.channel], c) {
			c.stamped(ctx, stamps[i].value, stamps[i].err)
		}
	}
}

type stamp struct {
	value string
	err   error
}

// readStamps reads the stamps of the destinations, see arguments.lua: by one command, on a
// Cluster by one pipeline for each node.
func (l *link) readStamps(ctx context.Context, cores []*core) []stamp {
	if len(cores) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	stamps := make([]stamp, len(cores))
	keys := make([]string, len(cores))
	for i, c := range cores {
		keys[i] = c.place.stamp
	}
	if rdb, ok := l.of.rdb.(*redis.Client); ok {
		values, err := rdb.MGet(ctx, keys...).Result()
		for i := range stamps {
			stamps[i].err = err
			if err == nil {
				stamps[i].value, _ = values[i].(string)
			}
		}
		if !refused(err) {
			return stamps
		}
		// The server is one of a Cluster (CROSSSLOT), or its user lacks the right.
	}
	found, _ := redispipe.Each(ctx, l.of.rdb, keys, func(pipe redis.Pipeliner, key string) *redis.StringCmd { // each command has its error
		return pipe.Get(ctx, key)
	})
	for i := range stamps {
		if stamps[i].value, stamps[i].err = found[i].Result(); errors.Is(stamps[i].err, redis.Nil) {
			stamps[i].err = nil
		}
	}
	return stamps
}

// subscribe listens to the channels of the cores until ctx ends. What it misses is found by
// keepFresh.
func (l *link) subscribe(ctx context.Context) {
	pause := retryFirst
	for ctx.Err() == nil {
		if l.listen(ctx) {
			pause = retryFirst
			continue
		}
		if ctx.Err() == nil {
			l.report(redis.ErrClosed) // it never worked: the client itself is closed
		}
		wait(ctx, pause)
		pause = min(2*pause, retrySlowest)
	}
}

// report logs that the subscription fails, or works again.
func (l *link) report(err error) {
	if failed := l.failed.Swap(err != nil); err == nil && !failed {
		return
	}
	l.mu.RLock() // leave waits
	defer l.mu.RUnlock()
	for c := range l.all() {
		c.unsubscribed.report(err)
	}
}

// listen uses one subscription until it is closed, and says whether anything was
// received. go-redis connects it again by itself after an error.
func (l *link) listen(ctx context.Context) (received bool) {
	l.receivedAt.Store(time.Now().UnixNano())
	pubsub := l.of.rdb.Subscribe(ctx) // connects with the first channel
	l.mu.Lock()
	l.pubsub.Store(pubsub)
	channels := slices.Collect(maps.Keys(l.cores))
	l.mu.Unlock()
	ended := make(chan struct{})
	cancelled := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = pubsub.Close() // wakes Receive
	})
	defer func() {
		if !cancelled() {
			<-ended
		}
		_ = pubsub.Close()
	}()
	_ = pubsub.Subscribe(ctx, channels...) // an error is Receive's, too

	pause := retryFirst
	for {
		got, err := pubsub.Receive(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return received
		case err != nil:
			l.report(err)
			wait(ctx, pause)
			pause = min(2*pause, retrySlowest)
			continue
		}
		pause, received = retryFirst, true
		l.report(nil)
		l.receivedAt.Store(time.Now().UnixNano())
		switch got := got.(type) {
		case *redis.Subscription:
			if got.Kind == "subscribe" {
				select {
				case l.confirmed <- struct{}{}:
				default:
				}
			}
		case *redis.Message:
			l.dispatch(got)
		}
	}
}

// dispatch passes a message on to the cores of its channel.
func (l *link) dispatch(m *redis.Message) {
	l.mu.RLock() // leave waits
	defer l.mu.RUnlock()
	for _, c := range l.cores[m.Channel] {
		c.receive(m.Payload)
	}
}

// checkSubscription pings a subscription that has been silent, and renews it if that brings
// no answer.
func (l *link) checkSubscription(ctx context.Context) {
	pubsub := l.pubsub.Load()
	if pubsub == nil {
		return
	}
	switch silent := time.Since(time.Unix(0, l.receivedAt.Load())); {
	case silent > dead:
		_ = pubsub.Close() // listen starts another
	case silent > quiet:
		_ = pubsub.Ping(ctx) // a failure is renewed as silence
	}
}
