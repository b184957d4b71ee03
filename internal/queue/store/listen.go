package store

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// silence is how long nothing may be received before the connection is tested, and
	// answerWithin how long the answer may take before it is renewed. Proxies, load balancers
	// and NAT cut connections that are idle for longer: usually a minute or more.
	silence, answerWithin = 3 * time.Second, time.Second
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
	listen(ctx, rdb, silence, subscribed, received, channels...)
}

func listen(ctx context.Context, rdb redis.UniversalClient, silence time.Duration, subscribed func(channel string), received func(*redis.Message), channels ...string) {
	var sub atomic.Pointer[redis.PubSub]
	sub.Store(subscribe(ctx, rdb, 0, channels...))
	ended := make(chan struct{})
	cancelled := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = sub.Load().Close() // wakes Receive
	})
	defer func() {
		if !cancelled() {
			<-ended
		}
		_ = sub.Load().Close()
	}()
	limit, renewed := silence, 0
	for ctx.Err() == nil {
		got, err := sub.Load().ReceiveTimeout(ctx, limit)
		timeout, _ := errors.AsType[net.Error](err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			silent := timeout != nil && timeout.Timeout()
			// A connection that is only half open says nothing either.
			if silent && limit == silence && sub.Load().Ping(ctx) == nil {
				limit = answerWithin
				continue
			}
			if !silent {
				select {
				case <-time.After(listenAgain):
				case <-ctx.Done():
				}
			}
			_ = sub.Load().Close()
			renewed++
			sub.Store(subscribe(ctx, rdb, renewed, channels...))
			limit = silence
			continue
		}
		limit = silence
		switch got := got.(type) {
		case *redis.Subscription:
			subscribed(got.Channel)
		case *redis.Message:
			received(got)
		}
	}
}

// subscribe subscribes to channels. On a Cluster each node has all messages: it takes the n-th
// master, as the one before may hang.
func subscribe(ctx context.Context, rdb redis.UniversalClient, n int, channels ...string) *redis.PubSub {
	c, cluster := rdb.(*redis.ClusterClient)
	if !cluster {
		return rdb.Subscribe(ctx, channels...)
	}
	masters := map[string]*redis.Client{}
	for i := range 64 { // slots at random find the masters without a command
		if master, err := c.MasterForKey(ctx, strconv.Itoa(i)); err == nil {
			masters[master.Options().Addr] = master
		}
	}
	if len(masters) == 0 {
		return rdb.Subscribe(ctx, channels...)
	}
	addrs := slices.Sorted(maps.Keys(masters))
	return masters[addrs[n%len(addrs)]].Subscribe(ctx, channels...)
}
