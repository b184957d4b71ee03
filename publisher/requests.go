package publisher

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/engine"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// startListening subscribes to requested actions and to wake messages until stop is called,
// which is after the last call has ended.
func (p *Publisher) startListening(ctx context.Context, w *engine.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.listen(ctx, w) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// listen passes on actions (cancel, pause) requested of jobs that run here, and that queues
// have something for the worker, until ctx ends.
// If a message is lost, the engine's next look or poll finds what it said.
//
// It calls Receive: the channel of a subscription has goroutines that no context ends, and
// its Close waits for them while Redis hangs.
func (p *Publisher) listen(ctx context.Context, w *engine.Worker) {
	actions, wake := p.ns.ActionsChannel(), p.ns.WakeChannel()
	var current atomic.Pointer[redis.PubSub]
	subscribe := func() *redis.PubSub {
		sub := p.rdb.Subscribe(ctx, actions, wake)
		current.Store(sub)
		return sub
	}
	sub := subscribe()
	var reading sync.WaitGroup
	defer reading.Wait()
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
			wait(ctx, listenAgain, nil)
			continue
		}
		silent = 0
		switch msg := got.(type) {
		case *redis.Subscription:
			if msg.Channel == wake {
				w.Resync() // what was published before is lost
			}
		case *redis.Message:
			if msg.Channel == actions {
				reading.Go(func() { p.requested(ctx, msg.Payload) })
				continue
			}
			queue, ms, later := strings.Cut(msg.Payload, " ")
			if !later {
				w.Ready(queue)
			} else if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
				w.LookIn(queue, store.Duration(n))
			}
		}
	}
}

// silence is how long nothing may be received before the connection is tested, and then renewed.
const silence = 3 * time.Second

// listenAgain is the pause after the subscription has been lost.
const listenAgain = 500 * time.Millisecond

// readWithin bounds the read that follows a message.
const readWithin = time.Second

// requested makes the engine of the job's destination read the requested action; see
// store.ActionsChannel for the form of the message.
func (p *Publisher) requested(ctx context.Context, message string) {
	queue, rest, _ := strings.Cut(message, " ")
	id, _, _ := strings.Cut(rest, " ")
	name, _, ok := store.ParseQueue(queue)
	if !ok {
		return
	}
	p.mu.Lock()
	d := p.destinations[name]
	p.mu.Unlock()
	if d != nil {
		ctx, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		d.engine.LookForAction(ctx, queue, id)
	}
}
