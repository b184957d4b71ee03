package publisher

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/asynqx"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"

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

// listen passes on actions (cancel, pause) requested of jobs that run here, and that queues have something for the
// worker, until ctx ends. If a message is lost, the engine's next poll finds the action or the job.
func (p *Publisher) listen(ctx context.Context, w *engine.Worker) {
	actions, wake := p.ns.ActionsChannel(), p.ns.WakeChannel()
	var reading sync.WaitGroup
	defer reading.Wait()
	subscribed := func(channel string) {
		if channel == wake {
			w.Resync() // what was published before is lost
		}
	}
	received := func(msg *redis.Message) {
		switch msg.Channel {
		case actions:
			reading.Go(func() { p.requested(ctx, msg.Payload) })
		case asynqx.CancelChannel:
			w.CancelTask(msg.Payload)
		default:
			w.Receive(msg.Payload)
		}
	}
	store.Listen(ctx, p.rdb, subscribed, received, actions, wake, asynqx.CancelChannel)
}

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
		d.engine.ReadAction(ctx, queue, id)
	}
}
