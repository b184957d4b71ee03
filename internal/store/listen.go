package store

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// silence is how long nothing may be received before the connection is tested, and then
	// renewed.
	silence = 3 * time.Second
	// listenAgain is the pause after the subscription has been lost.
	listenAgain = 500 * time.Millisecond
)

// Listen subscribes to channels until ctx ends. It calls subscribed for each channel whenever it
// is subscribed to, also again: what was published before may be lost. It calls received for
// each message, in the same goroutine.
//
// It calls Receive: the channel of a subscription has goroutines that no context ends, and
// its Close waits for them while Redis hangs.
func Listen(ctx context.Context, rdb redis.UniversalClient, subscribed func(channel string), received func(*redis.Message), channels ...string) {
	var current atomic.Pointer[redis.PubSub]
	subscribe := func() *redis.PubSub {
		sub := rdb.Subscribe(ctx, channels...)
		current.Store(sub)
		return sub
	}
	sub := subscribe()
	silent := 0 // how often in a row nothing was received
	ended := make(chan struct{})
	cancelled := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = current.Load().Close() // wakes Receive
	})
	defer func() {
		if !cancelled() {
			<-ended
		}
		_ = sub.Close()
	}()
	for {
		got, err := sub.ReceiveTimeout(ctx, silence)
		timeout, _ := errors.AsType[net.Error](err)
		switch {
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return
		case timeout != nil && timeout.Timeout():
			// A connection that is only half open says nothing either.
			if silent++; silent == 1 && sub.Ping(ctx) == nil {
				continue
			}
			_ = sub.Close()
			sub, silent = subscribe(), 0
			continue
		case err != nil: // the next Receive connects again
			select {
			case <-time.After(listenAgain):
			case <-ctx.Done():
			}
			continue
		}
		silent = 0
		switch got := got.(type) {
		case *redis.Subscription:
			subscribed(got.Channel)
		case *redis.Message:
			received(got)
		}
	}
}
