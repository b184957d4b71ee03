package publisher

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// startListening listens until the returned function is called, which is after the
// last call has ended.
func (p *Publisher) startListening(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.listen(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// listen passes on what people ask of jobs that run here, until ctx ends. Word that
// is lost, because Redis was away for instance, is found by the next beat.
//
// It reads by itself: the subscription's own channel has goroutines that no context
// ends, and closing it waits for them while Redis hangs.
func (p *Publisher) listen(ctx context.Context) {
	sub := p.rdb.Subscribe(ctx, store.ActionsChannel)
	ended := make(chan struct{})
	cancelled := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = sub.Close() // wakes Receive
	})
	defer func() {
		if !cancelled() {
			<-ended
		}
		_ = sub.Close()
	}()
	for {
		got, err := sub.Receive(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return
		case err != nil: // the next Receive connects again
			wait(ctx, listenAgain, nil)
		}
		if word, ok := got.(*redis.Message); ok {
			p.mark(ctx, word.Payload)
		}
	}
}

// listenAgain is the pause after the subscription has been lost.
const listenAgain = 500 * time.Millisecond

// lookWithin bounds the read that follows a message.
const lookWithin = time.Second

// mark has the destination of a job look at what is asked of it; see store.ActionsChannel
// for the form.
func (p *Publisher) mark(ctx context.Context, word string) {
	queue, rest, _ := strings.Cut(word, " ")
	id, _, _ := strings.Cut(rest, " ")
	name, _, ok := store.ParseQueue(queue)
	if !ok {
		return
	}
	p.mu.Lock()
	d := p.destinations[name]
	p.mu.Unlock()
	if d != nil {
		ctx, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		d.engine.LookForAction(ctx, queue, id)
	}
}
