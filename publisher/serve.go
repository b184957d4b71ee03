package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/engine"
	"github.com/tidegate/tidegate/internal/store"
)

// bookkeeping is the time that a shutdown leaves for what follows the calls.
const bookkeeping = 3 * time.Second

// requeueFor is the part of it that is left to put back jobs whose handlers do not return.
const requeueFor = 500 * time.Millisecond

// The causes (context.Cause) of a handler's context that ended before its timeout.
var (
	// ErrShutdown: the worker is shutting down and ShutdownTimeout is over.
	ErrShutdown = errors.New("the worker is shutting down")
	// ErrCancelled: the job was cancelled.
	ErrCancelled = errors.New("cancelled")
)

// server is the one asynq Server of a Publisher, for all of its destinations.
type server struct {
	p            *Publisher
	destinations []*destination
	worker       *engine.Worker
	client       *asynqx.Client
	asynq        *asynq.Server
}

// serve starts a Server for destinations that are prepared.
func (p *Publisher) serve(destinations []*destination) (*server, error) {
	s := &server{p: p, destinations: destinations}
	engines := make([]*engine.Engine, len(destinations))
	for i, d := range destinations {
		engines[i] = d.engine
	}
	s.worker = engine.NewWorker(p.rdb, engine.WorkerOptions{PollEvery: p.o.RetryLoopInterval}, engines...)
	s.client = asynqx.New(p.rdb, s.worker)
	s.asynq = asynq.NewServerFromRedisClient(s.client, asynq.Config{
		Concurrency: s.worker.Concurrency(), // the engines keep that of each destination
		Queues:      map[string]int{asynqx.Queue: 1},
		// The engine waits for jobs; asynq only needs a pause for the time of a shutdown.
		TaskCheckInterval: 5 * time.Millisecond,
		// The engine moves due jobs by itself.
		DelayedTaskCheckInterval: time.Hour,
		// Later than our own bound, so that our cut comes first.
		ShutdownTimeout: p.o.ShutdownTimeout + bookkeeping - requeueFor,
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:       func(error) bool { return false },
		Logger:          newAsynqLogger(p.o.Logger),
		LogLevel:        asynq.DebugLevel,
	})
	if err := s.asynq.Start(asynq.HandlerFunc(s.process)); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	s.worker.Start()
	return s, nil
}

// process passes a fetched job on to its destination.
func (s *server) process(ctx context.Context, task *asynq.Task) error {
	queue, _ := asynq.GetQueueName(ctx)
	name, _, _ := store.ParseQueue(queue)
	d := s.p.destination(name)
	if d == nil {
		return fmt.Errorf("publisher: queue %s is not served here", queue)
	}
	return d.process(ctx, task)
}

// shutdown stops fetching, lets calls in flight finish, cuts them when the time is over, and
// returns when nothing runs any more.
func (s *server) shutdown() {
	o := s.p.o
	ctx, cancel := context.WithTimeout(context.Background(), o.ShutdownTimeout+bookkeeping)
	defer cancel()
	for _, d := range s.destinations {
		d.phase.Store(phaseStopping)
	}
	cut := time.AfterFunc(o.ShutdownTimeout, func() {
		for _, d := range s.destinations {
			d.cutCalls(ErrShutdown)
		}
	})
	defer cut.Stop()
	// Where Redis does not answer, bookkeeping is not waited for: what it leaves undone comes
	// back when leases end.
	abort := time.AfterFunc(o.ShutdownTimeout+bookkeeping, s.worker.Abort)
	defer abort.Stop()
	if err := s.worker.CloseGate(ctx); err != nil {
		o.Logger.Warn("shutdown: not every permit could be released; leases end by themselves", "error", err)
	}
	s.asynq.Stop()
	s.asynq.Shutdown()
	s.worker.Finish()
	if err := s.client.Close(); err != nil {
		o.Logger.Debug("subscription not closed", "error", err)
	}
	closeAll(s.destinations)
}

func closeAll(destinations []*destination) {
	var wg sync.WaitGroup
	for _, d := range destinations {
		wg.Go(d.close)
	}
	wg.Wait()
}
