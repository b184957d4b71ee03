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
)

// keepFresh reads the snapshot every RefreshInterval, and when asked to.
func (b *Breaker) keepFresh(ctx context.Context) {
	ticker := time.NewTicker(b.options.RefreshInterval)
	defer ticker.Stop()
	trouble := trouble{b: b, warn: func(err error) {
		b.log.Warn("breaker cannot read its state from Redis; the last known state holds", "breaker", b.place.name, "error", err)
	}}
	for reads := 1; ; reads++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-b.refresh:
		}
		err := b.readSnapshot(ctx)
		if err == nil {
			if v := b.view.Load(); v.behind || v.state != Closed && reads%healEvery == 0 {
				err = b.heal(ctx)
			}
		}
		if err == nil {
			b.checkSubscription(ctx)
		}
		if ctx.Err() == nil {
			trouble.report(err)
		}
	}
}

// readSnapshot reads what the fleet knows, and the transitions missed so far.
func (b *Breaker) readSnapshot(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, v, err := b.run(ctx, snapshotScript, nil)
	if err != nil {
		return err
	}
	b.events.start(r.version)
	if !v.closed && b.events.missed(r.version) {
		return b.catchUp(ctx, r.version)
	}
	return nil
}

// heal has a script look at the breaker's hash, which writes what it finds to
// be wrong: see advance.lua.
func (b *Breaker) heal(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, _, err := b.run(ctx, advanceScript, nil)
	return err
}

// askRefresh asks for a read of the snapshot as soon as possible.
func (b *Breaker) askRefresh() {
	select {
	case b.refresh <- struct{}{}:
	default:
	}
}

// subscribe listens to the breaker's channel until ctx ends. What it misses is
// found by keepFresh.
func (b *Breaker) subscribe(ctx context.Context) {
	trouble := trouble{b: b, warn: func(err error) {
		b.log.Warn("breaker has lost its subscription; changes are seen with the next read", "breaker", b.place.name, "error", err)
	}}
	for ctx.Err() == nil {
		b.listen(ctx, &trouble)
	}
}

// listen uses one subscription until it is closed. go-redis connects it again
// by itself after an error.
func (b *Breaker) listen(ctx context.Context, trouble *trouble) {
	b.heard.Store(time.Now().UnixNano())
	pubsub := b.rdb.Subscribe(ctx, b.place.channel)
	b.pubsub.Store(pubsub)
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
			return
		case err != nil:
			trouble.report(err)
			wait(ctx, pause)
			pause = min(2*pause, retrySlowest)
			continue
		}
		pause = retryFirst
		trouble.report(nil)
		b.heard.Store(time.Now().UnixNano())
		switch got := got.(type) {
		case *redis.Subscription:
			b.askRefresh() // for what was published before
		case *redis.Message:
			b.receive(got.Payload)
		}
	}
}

// receive takes note of a published message.
func (b *Breaker) receive(payload string) {
	var m message
	if err := json.Unmarshal([]byte(payload), &m); err != nil || m.Record.Name != b.place.name {
		return // not one of ours
	}
	b.observe(observation{version: m.Version, now: m.Now, record: m.Record, received: b.clock.now()})
	if !b.events.message(&m) {
		b.askRefresh()
	}
}

// checkSubscription pings a subscription that has been silent, and renews it
// if that brings no answer: a connection can die without an error.
func (b *Breaker) checkSubscription(ctx context.Context) {
	pubsub := b.pubsub.Load()
	if pubsub == nil {
		return
	}
	switch silent := time.Since(time.Unix(0, b.heard.Load())); {
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
	b      *Breaker
	warn   func(error)
	logged time.Time // of the last warning; zero while all is well
	since  time.Time
}

func (t *trouble) report(err error) {
	now := time.Now()
	switch {
	case err == nil && !t.logged.IsZero():
		t.b.log.Info("breaker is in touch with Redis again", "breaker", t.b.place.name, "after", now.Sub(t.since).Round(time.Millisecond).String())
		t.logged = time.Time{}
	case err != nil && t.logged.IsZero():
		t.since = now
		fallthrough
	case err != nil && now.Sub(t.logged) >= logEvery:
		t.warn(err)
		t.logged = now
	}
}
