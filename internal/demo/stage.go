package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakeapi/loopback"
	"github.com/tidegate/tidegate/internal/minutes"
	"github.com/tidegate/tidegate/internal/redisconn"
	"github.com/tidegate/tidegate/internal/redisconn/embedded"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// destination is what the jobs are published to.
const destination = "pictures"

// Times of the show without a flag.
const (
	// grace is how long calls in flight get at the end.
	grace = 5 * time.Second
	// forward is how often jobs whose time has come move to the queue.
	forward = 200 * time.Millisecond
	// callMargin is the time that a call may take beyond the API's latency.
	callMargin = 10 * time.Second
)

// stage holds all that the show needs, in this process: Redis, the API, Slack, a client
// that enqueues, an observer of the breaker, and the workers.
type stage struct {
	o        Options
	timeline *timeline
	redis    *embedded.Server
	api      *fakeapi.API
	slack    string // URL of the webhook
	rdb      redis.UniversalClient
	client   *jobs.Client
	counts   *minutes.Recorder // for the charts of the dashboard

	workers errgroup.Group
	stop    context.CancelFunc
	closers []func() error
}

// newStage builds everything but the workers.
func newStage(ctx context.Context, o Options, t *timeline) (s *stage, err error) {
	s = &stage{o: o, timeline: t, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.redis, err = embedded.Start(); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.redis.Close)
	s.api = fakeapi.New(fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: o.Quota, Window: o.Window},
		Latency: o.Latency,
		Light:   true,
	})
	channel := loopback.NewServer("slack", t)
	if s.slack, err = channel.Start(""); err != nil {
		return s, err
	}
	s.closers = append(s.closers, channel.Close)
	if s.rdb, err = s.connect(ctx, "demo"); err != nil {
		return s, err
	}
	if s.client, err = jobs.NewClient(s.rdb, jobs.WithDestinations(destination)); err != nil {
		return s, err
	}
	s.counts = minutes.NewRecorder(s.rdb, s.client, slog.New(slog.DiscardHandler))
	rules := s.rules()
	rules.Destination, rules.Instance, rules.OnEvent = destination, "observer", t.transition
	observer, err := breaker.New(ctx, s.rdb, rules)
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, observer.Close)
	t.view = observer.View
	return s, nil
}

// connect opens connections of their own to the embedded Redis.
func (s *stage) connect(ctx context.Context, name string) (redis.UniversalClient, error) {
	rdb, closer, err := redisconn.Open(ctx, s.redis.URL(), redisconn.Options{ClientName: name, ReadTimeout: time.Minute}) // it is slow, never away
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, closer.Close)
	return rdb, nil
}

// rules are the breaker's, the same for all workers.
func (s *stage) rules() breaker.Options {
	return breaker.Options{FailureThreshold: s.o.Threshold, Cooldown: s.o.Cooldown, ProbeTimeout: s.timeout() + time.Second}
}

func (s *stage) timeout() time.Duration { return s.o.Latency + callMargin }

// enqueue enqueues the jobs and returns their ids.
func (s *stage) enqueue(ctx context.Context) ([]string, error) {
	specs := make([]*jobs.Spec, s.o.Jobs)
	for i := range specs {
		specs[i] = picture(fmt.Sprintf("Picture %d", i+1))
	}
	results, err := s.client.EnqueueMany(ctx, specs)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(results))
	for i, r := range results {
		if r.Err != nil {
			return nil, r.Err
		}
		ids[i] = r.Job.ID
	}
	return ids, nil
}

// start starts the API and the workers.
func (s *stage) start(ctx context.Context) error {
	url, err := s.api.Start("")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.api.Close)
	// They are stopped by close, so that jobs in flight are finished also
	// when ctx ends.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.workers.Go(func() error { s.counts.Run(running); return nil })
	for n := range s.o.Workers {
		if err := s.startWorker(running, fmt.Sprintf("worker %d", n+1), url); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) startWorker(ctx context.Context, name, url string) error {
	rdb, err := s.connect(ctx, "demo-worker")
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	to, err := slack.New(slack.Options{Webhook: s.slack})
	if err != nil {
		return err
	}
	alerting, err := alerts.New(rdb, alerts.Options{
		Notifiers: []notice.Notifier{to}, Destinations: []string{destination}, Logger: quiet, Worker: name,
	})
	if err != nil {
		return err
	}
	options := publisher.Options{Logger: quiet, Worker: name, ShutdownTimeout: grace, RetryLoopInterval: forward}
	options.Observe(publisher.Observer{OnJob: s.timeline.jobEnded})
	alerting.Observe(&options)
	s.counts.Observe(&options)
	p, err := publisher.New(rdb, options)
	if err != nil {
		return err
	}
	h, err := publisher.NewHTTP(publisher.HTTPOptions{URL: url + "/pictures", Connections: s.o.Concurrency})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, h.Close)
	err = p.Handle(destination, s.timeline.watch(name, h),
		publisher.Concurrency(s.o.Concurrency), publisher.Timeout(s.timeout()), publisher.Breaker(s.rules()))
	if err == nil {
		err = alerting.Serve(p)
	}
	if err != nil {
		return err
	}
	s.workers.Go(func() error {
		defer alerting.Close()
		_ = alerting.Run(ctx)
		return nil
	})
	s.workers.Go(func() error { return p.Run(ctx) })
	return nil
}

// halt stops the workers and waits until they have ended.
func (s *stage) halt() error {
	s.stop()
	if err := s.workers.Wait(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// close takes everything down, the last built first.
func (s *stage) close() error {
	errs := []error{s.halt()}
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c())
	}
	s.closers = nil
	return errors.Join(errs...)
}
