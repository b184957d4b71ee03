package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// healEvery is how many reads of the snapshot go by, while not CLOSED,
	// between looks at the breaker's own hash: it may have been deleted alone.
	healEvery = 10
	// quiet is how long the subscription may be silent before it is pinged, and
	// dead how long before it is renewed.
	quiet = 10 * time.Second
	dead  = 30 * time.Second
	// logEvery limits warnings about one and the same trouble.
	logEvery = 30 * time.Second
	// A broken subscription is renewed after retryFirst, then more and more
	// slowly, down to retrySlowest.
	retryFirst, retrySlowest = 50 * time.Millisecond, time.Second
	// timeEvery is how many reads go by, while nothing changes, between those that
	// ask for the time as well.
	timeEvery = 5
	// wholeEvery is how many registrations go by between reads of all that the
	// snapshot has, which finds what a loss took that others wrote over at once.
	wholeEvery = 6
	// snapshotPage is how many changes one read brings.
	snapshotPage = 200
)

// keepFresh reads the snapshot every RefreshInterval, and when asked to, and tells
// Redis from time to time that the instance lives.
func (c *core) keepFresh(ctx context.Context) {
	ticker := time.NewTicker(c.options.RefreshInterval)
	defer ticker.Stop()
	trouble := trouble{c: c, warn: func(err error) {
		c.log.Warn("breaker cannot read its state from Redis; the last known state holds", "breaker", c.place.name, "error", err)
	}}
	registeredAt, registrations := time.Now(), 0
	for reads := 1; ; reads++ {
		select {
		case <-ctx.Done():
			return
		case <-c.joins.wake:
			c.sendJoins(ctx)
			continue
		case <-ticker.C:
			c.endLapsed()
		case <-c.refresh:
		}
		lost, err := c.readChanges(ctx, reads%timeEvery == 0)
		if err == nil && lost {
			err = c.heal(ctx, "")
		}
		if err == nil {
			err = c.healSome(ctx, reads)
		}
		if err == nil && (lost || !c.enrolled.Load() || time.Since(registeredAt) >= registerEvery) {
			registeredAt = time.Now()
			err = c.register(ctx, registered)
			if registrations++; registrations%wholeEvery == 0 {
				c.whole.Store(true)
			}
		}
		if err == nil {
			c.sendJoins(ctx) // what could not be told at once
			c.flushRescheduled(ctx)
			c.checkSubscription(ctx)
		}
		if ctx.Err() == nil {
			trouble.report(err)
		}
	}
}

// healSome has a script look now and then at the hashes of breakers that are not
// CLOSED; it writes what it finds to be wrong, see advance.lua. A hash may have
// been deleted alone.
func (c *core) healSome(ctx context.Context, reads int) error {
	if v := c.view.Load(); v.behind || v.state != Closed && reads%healEvery == 0 {
		if err := c.heal(ctx, ""); err != nil {
			return err
		}
	}
	if reads%healEvery == 0 && c.keys.n.Load() > 0 {
		for key, v := range c.keys.all() { // in no order: another one each time
			if v.state != Closed {
				return c.heal(ctx, key)
			}
		}
	}
	return nil
}

func (c *core) heal(ctx context.Context, key string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := c.run(ctx, key, advanceScript, nil)
	return err
}

// askRefresh asks for a read of the snapshot as soon as possible.
func (c *core) askRefresh() {
	poke(c.refresh)
}

// subscribe listens to the breaker's channel until ctx ends. What it misses is
// found by keepFresh.
func (c *core) subscribe(ctx context.Context) {
	trouble := trouble{c: c, warn: func(err error) {
		c.log.Warn("breaker has lost its subscription; changes are seen with the next read", "breaker", c.place.name, "error", err)
	}}
	pause := retryFirst
	for ctx.Err() == nil {
		if c.listen(ctx, &trouble) {
			pause = retryFirst
			continue
		}
		if ctx.Err() == nil {
			trouble.report(redis.ErrClosed) // it never worked: the client itself is closed
		}
		wait(ctx, pause)
		pause = min(2*pause, retrySlowest)
	}
}

// listen uses one subscription until it is closed, and says whether anything was
// received. go-redis connects it again by itself after an error.
func (c *core) listen(ctx context.Context, trouble *trouble) (received bool) {
	c.heard.Store(time.Now().UnixNano())
	pubsub := c.rdb.Subscribe(ctx, c.place.channel)
	c.pubsub.Store(pubsub)
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

	pause := retryFirst
	for {
		got, err := pubsub.Receive(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return received
		case err != nil:
			trouble.report(err)
			wait(ctx, pause)
			pause = min(2*pause, retrySlowest)
			continue
		}
		pause, received = retryFirst, true
		trouble.report(nil)
		c.heard.Store(time.Now().UnixNano())
		switch got := got.(type) {
		case *redis.Subscription:
			c.askRefresh() // for what was published before
		case *redis.Message:
			c.receive(got.Payload)
		}
	}
}

// receive takes note of a published message.
func (c *core) receive(payload string) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil || m.Origin == "" {
		return // not one of ours
	}
	key, ours := c.keyOf(m.Record.Name)
	if !ours {
		return
	}
	switch c.origins.check(m.Origin) {
	case ownOrigin:
	case newOrigin: // what this database had may have been lost
		c.askRefresh()
		return
	case otherOrigin:
		return
	}
	received := c.clock.now()
	c.raise(m.Version, received)
	if m.Record.Revision > c.synced.Load() {
		c.observe(key, observation{version: m.Record.Revision, now: m.Now, record: m.Record, received: received})
	}
	if !c.events.message(&m) {
		c.askRefresh()
	}
}

// checkSubscription pings a subscription that has been silent, and renews it
// if that brings no answer: a connection can die without an error.
func (c *core) checkSubscription(ctx context.Context) {
	pubsub := c.pubsub.Load()
	if pubsub == nil {
		return
	}
	switch silent := time.Since(time.Unix(0, c.heard.Load())); {
	case silent > dead:
		_ = pubsub.Close() // listen starts another
	case silent > quiet:
		_ = pubsub.Ping(ctx) // a failure is renewed as silence
	}
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// trouble logs when something starts to fail, when it works again, and
// meanwhile now and then.
type trouble struct {
	c      *core
	warn   func(error)
	logged time.Time // of the last warning; zero while all is well
	since  time.Time
}

func (t *trouble) report(err error) {
	now := time.Now()
	switch {
	case err == nil && !t.logged.IsZero():
		t.c.log.Info("breaker is in touch with Redis again", "breaker", t.c.place.name, "after", now.Sub(t.since).Round(time.Millisecond).String())
		t.logged = time.Time{}
	case err != nil && t.logged.IsZero():
		t.since = now
		fallthrough
	case err != nil && now.Sub(t.logged) >= logEvery:
		t.warn(err)
		t.logged = now
	}
}
