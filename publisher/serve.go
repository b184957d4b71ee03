package publisher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/queue/asynqx"
	"github.com/tidegate/tidegate/internal/queue/engine"
)

// bookkeeping is the time of a shutdown after ShutdownTimeout for applying outcomes.
const bookkeeping = 3 * time.Second

// requeueFor is the part of it for putting back jobs whose handlers do not return.
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
	byQueue      map[string]*destination
	worker       *engine.Worker
	asynq        *asynq.Server
	handlers     sync.WaitGroup // calls of process
}

// serve starts a Server for prepared destinations.
func (p *Publisher) serve(destinations []*destination) (*server, error) {
	s := &server{p: p, destinations: destinations, byQueue: map[string]*destination{}}
	engines := make([]*engine.Engine, len(destinations))
	for i, d := range destinations {
		engines[i] = d.engine
		for _, q := range d.queues() {
			s.byQueue[q] = d
		}
	}
	s.worker = engine.NewWorker(p.rdb, engine.WorkerOptions{PollEvery: p.o.RetryLoopInterval}, engines...)
	s.asynq = asynq.NewServerFromRedisClient(asynqx.New(p.rdb, s.worker), asynq.Config{
		Concurrency: s.worker.Concurrency(), // each engine bounds its destination's
		Queues:      map[string]int{asynqx.Queue: 1},
		// The engine waits for jobs; asynq pauses only during a shutdown.
		TaskCheckInterval: 5 * time.Millisecond,
		// The engine forwards due jobs.
		DelayedTaskCheckInterval: time.Hour,
		// Later than ShutdownTimeout, so that shutdown cuts the calls first.
		ShutdownTimeout: p.o.ShutdownTimeout + bookkeeping - requeueFor,
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:       func(error) bool { return false },
		Logger:          &asynqLogger{log: p.o.Logger, limit: outage.Limiter{Every: asynqLogEvery}},
		LogLevel:        asynq.DebugLevel,
	})
	if err := s.asynq.Start(asynq.HandlerFunc(s.process)); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	s.worker.Start()
	return s, nil
}

// process runs the job that asynq's goroutine was started for, and then others that are ready:
// what asynq does for a task costs more than all else that a job takes in this process.
// It returns now and then, so that asynq's heartbeat and limits see the goroutine come and go.
func (s *server) process(ctx context.Context, _ *asynq.Task) error {
	s.handlers.Add(1) // asynq may stop waiting for it
	defer s.handlers.Done()
	delivery := s.worker.Take()
	var c caller
	defer c.end()
	until := time.Now().Add(runFor)
	more := func() bool { return ctx.Err() == nil && time.Now().Before(until) }
	for delivery != nil {
		if decideLater := s.run(delivery, &c); decideLater != nil {
			parked := delivery
			delivery = s.worker.Park(parked)
			s.handlers.Go(func() {
				defer s.worker.Settle(parked)
				defer func() { s.logPanic(parked, recover()) }()
				decideLater()
			})
			continue
		}
		if !more() {
			s.worker.Settle(delivery)
			break
		}
		delivery = s.worker.After(delivery)
	}
	return nil
}

// runFor is how long a goroutine of asynq's begins further jobs.
const runFor = time.Second

// run passes a job on to its destination; see process. If that panics, the job has no outcome, and
// fails.
func (s *server) run(delivery *engine.Delivery, c *caller) (decideLater func()) {
	defer func() { s.logPanic(delivery, recover()) }()
	return s.byQueue[delivery.Queue].process(delivery, c)
}

// logPanic logs what recover has returned, unless it is nil.
func (s *server) logPanic(delivery *engine.Delivery, panicked any) {
	if panicked != nil {
		s.p.o.Logger.Error("the processing of a job panicked", "job", delivery.ID, "panic", panicked, "stack", string(debug.Stack()))
	}
}

// shutdown stops fetching, waits for calls in flight, cuts them after ShutdownTimeout, and
// returns when the Server has stopped.
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
	// If Redis does not answer, outcomes that are not applied by then are lost: their jobs are
	// recovered when their leases end.
	abort := time.AfterFunc(o.ShutdownTimeout+bookkeeping, s.worker.Abort)
	defer abort.Stop()
	requeue, stop := context.WithTimeout(ctx, o.ShutdownTimeout+bookkeeping-requeueFor)
	defer stop()
	if err := s.worker.CloseGate(ctx); err != nil {
		o.Logger.Warn("shutdown: not every permit could be released; leases end by themselves", "error", err)
	}
	s.asynq.Stop()
	s.asynq.Shutdown()
	returned := s.awaitHandlers(requeue)
	s.worker.Finish()
	closeAll(s.destinations, returned)
}

// awaitHandlers waits for the handlers that asynq does not wait for, because the process was
// suspended for longer than asynq's lease. The channel is closed when all have returned or are
// abandoned.
func (s *server) awaitHandlers(ctx context.Context) <-chan struct{} {
	returned := make(chan struct{})
	go func() { // ends soon after closeAll at the latest
		s.handlers.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-ctx.Done():
	}
	return returned
}

// closeAll ends the destinations. What waits for abandoned handlers has ended then, and logged that
// they still run, unless Redis does not answer for requeueFor. returned is nil if none was called.
func closeAll(destinations []*destination, returned <-chan struct{}) {
	var wg sync.WaitGroup
	for _, d := range destinations {
		wg.Go(d.abandon)
	}
	wg.Wait()
	if returned != nil {
		select {
		case <-returned:
		case <-time.After(requeueFor):
		}
	}
	for _, d := range destinations {
		wg.Go(d.close)
	}
	wg.Wait()
}
