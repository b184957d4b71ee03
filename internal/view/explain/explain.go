// Package explain explains why a job waits, and until when.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// The reasons of [Waiting].
const (
	// BreakerOpen: the rate limit of the destination, or of the job's key, is reached.
	BreakerOpen = "breaker_open"
	// BreakerTripped: an operator has opened the breaker.
	BreakerTripped = "breaker_tripped"
	// Credentials: the API refuses the token of the destination, or of the job's key.
	Credentials = "credentials"
	// BreakerProbing: one call tests whether the destination answers again.
	BreakerProbing = "breaker_probing"
	// Scheduled: it was enqueued for a time that has not come.
	Scheduled = "scheduled"
	// Rescheduled: it was rescheduled and its time has not come.
	Rescheduled = "rescheduled"
	// Retry: its last call failed and the next one is not due.
	Retry = "retry"
	// Unreachable: its call did not leave its worker, or no worker reaches the destination.
	Unreachable = "unreachable"
	// RefusedAlone: the API refuses the job and accepts others; the job alone waits.
	RefusedAlone = "refused_alone"
	// NoWorker: no worker serves the destination.
	NoWorker = "no_worker"
	// Queued: it is due and waits for its turn.
	Queued = "queued"
	// Turn: it is due, calls are scarce, and it is another key's turn.
	Turn = "turn"
	// ByRate: it is due and waits for its turn by the declared limit of the destination or of its key.
	ByRate = "rate"
	// ByConcurrency: it is due and waits for a slot: as many calls as may be are in flight.
	ByConcurrency = "concurrency"
	// Paused: an operator has paused it.
	Paused = "paused"
	// QueuePaused: an operator has paused the whole destination.
	QueuePaused = "queue_paused"
	// Parents: its parents have not completed.
	Parents = "parents"
	// Order: it waits behind another job of its key, which are called one at a time.
	Order = "order"
	// Accepted: its API has accepted it and reports the result.
	Accepted = "accepted"
	// WorkerLost: it runs at a worker that has sent no heartbeat for a while, and waits to be recovered.
	WorkerLost = "worker_lost"
)

// Waiting is why a job does not run now, or, by its status, only seems to.
type Waiting struct {
	// Reason is one of the constants of this package.
	Reason string `json:"reason" enum:"breaker_open,breaker_tripped,credentials,breaker_probing,scheduled,rescheduled,retry,unreachable,refused_alone,no_worker,queued,turn,rate,concurrency,paused,queue_paused,parents,order,accepted,worker_lost" doc:"Why, for programs." example:"breaker_open"`
	// Text contains text of operators and APIs: the caller removes control characters before printing it.
	Text string `json:"text" doc:"Why, in a sentence, with times in the server's time zone." example:"rate limit reached; deviantart reopens in 4m59s, at 14:35:00"`
	// Until is on Redis's clock.
	Until   *time.Time `json:"until" doc:"Until when, if that is known." example:"2030-01-31T14:35:00Z"`
	Breaker string     `json:"breaker" doc:"The breaker that holds it; empty for none." example:"deviantart"`
	// Ahead and AheadAtLeast are set by [Explainer.Place].
	Ahead        *int `json:"ahead" doc:"How many jobs of its destination and priority start before it, or of its key if that holds it; null if it is in no queue, or that is not exact." example:"12"`
	AheadAtLeast *int `json:"ahead_at_least" doc:"How many do at least, if ahead is not exact: keys take turns, or it is not among the first ones; else null." example:"10000"`
	KeyAhead     *int `json:"key_ahead" doc:"How many jobs of its key are before it, if it waits for the turn or the limits of its key, or behind another job of its key; else null." example:"3"`
	MoreUrgent   *int `json:"more_urgent" doc:"How many jobs wait in the more urgent queues of its destination: most of them start before it; null if it is in no queue." example:"0"`

	// Rank is its place in its queue, or among the jobs of its key, for a forecast.
	Rank *int `json:"-"`

	reserved bool   // for more urgent jobs: it has no turn yet
	others   bool   // jobs of other priorities wait
	pace     string // what holds the calls of its destination back
	brief    string // see Brief; "": the Text
}

// Brief is a short Text for a page that shows Until, Breaker and Ahead beside it; with an
// Until it ends in "in", and the page adds the remaining time.
func (w *Waiting) Brief() string { return cmp.Or(w.brief, w.Text) }

// Explainer explains the waiting of jobs as of one moment: it reads the clock,
// the workers and each breaker once, when they are first needed.
// Make a new one for each page; it is not safe for concurrent use.
type Explainer struct {
	rdb    redis.UniversalClient
	client *jobs.Client

	now      time.Time // Redis's clock in local time; zero until read
	seen     map[string]time.Time
	workers  jobs.Workers
	breakers map[string]breaker.Status
	named    map[string][]breaker.NamedUse // by destination
	paused   map[string]string             // by queue: what says that it is paused, "" if it is not
	orders   map[string]*jobs.Job          // by the key of an order in Redis: its first job, nil for none
	lost     map[string]time.Time          // by worker: the last sign of one that is lost; zero for a live one
}

// New returns an Explainer that has read nothing yet.
func New(rdb redis.UniversalClient, client *jobs.Client) *Explainer {
	return &Explainer{rdb: rdb, client: client, breakers: map[string]breaker.Status{}, named: map[string][]breaker.NamedUse{}, paused: map[string]string{}, orders: map[string]*jobs.Job{}, lost: map[string]time.Time{}}
}

// Waiting returns why the job waits, an accepted one for its result; nil if it has ended, or runs at a live worker. Errors are Redis's.
func (e *Explainer) Waiting(ctx context.Context, job *jobs.Job) (*Waiting, error) {
	if job.Status.Final() || job.Status == jobs.Running && job.Worker == "" && job.ReasonCode == "" {
		return nil, nil
	}
	if err := e.readFleet(ctx); err != nil {
		return nil, err
	}
	if store.Reason(job.ReasonCode).Code() == store.ReasonAccepted {
		return (&Waiting{Reason: Accepted, Text: job.Reason + "; without a result it fails"}).ends(job.AvailableAt, e.now), nil
	}
	if job.Status == jobs.Running {
		return e.running(ctx, job)
	}
	if InOrder(job) {
		return e.inOrder(ctx, job)
	}
	queue, destination := e.ns().Queue(job.Destination, store.Priority(job.Priority)), job.Destination
	status, err := e.breaker(ctx, job.Destination)
	if err != nil {
		return nil, err
	}
	var key, deferring *breaker.Status
	if held := Held(job); held || deferredByKey(job) {
		s, err := e.breaker(ctx, store.Reason(job.ReasonCode).About())
		if err != nil {
			return nil, err
		}
		if held {
			key = &s
		} else {
			deferring = &s
		}
	}
	paused, ok := e.paused[queue]
	if !ok {
		value, err := e.rdb.Get(ctx, store.PausedKey(queue)).Result()
		switch {
		case err == nil:
			p := store.ParsePause(value)
			paused = fmt.Sprintf("%s is %s; its jobs wait until: tidegate queue resume %s", destination, words.PausedBy(p.By, p.Reason), destination)
		case !errors.Is(err, redis.Nil):
			return nil, fmt.Errorf("explain: %w", err)
		}
		e.paused[queue] = paused
	}
	seen, err := e.seenAt(ctx, destination)
	if err != nil {
		return nil, err
	}
	f := facts{now: e.now, breaker: status, key: key, deferring: deferring, seen: seen, paused: paused, served: e.workers.Serve(destination)}
	if store.System(destination) { // workers do not list it
		f.served = e.now.Sub(seen) <= store.WorkerSilence
	}
	if u, all := e.workers.Unreached(destination); all {
		f.unreached = &u
	}
	w := f.waiting(job)
	if w == nil || w.Reason != Queued {
		return w, nil
	}
	if by, err := e.byPool(ctx, job); by != nil || err != nil {
		return by, err
	}
	named, ok := e.named[destination]
	if !ok {
		read, err := breaker.Namespace(e.ns()).ReadOne(ctx, e.rdb, breaker.Query{Limits: true}, job.Destination)
		if err != nil {
			return nil, fmt.Errorf("explain: %w", err)
		}
		named = read.Limits.Named
		e.named[destination] = named
	}
	if by := byNamed(named, job, e.now); by != nil {
		return by, nil
	}
	return w, nil
}

func (e *Explainer) ns() store.Namespace { return store.Namespace(e.client.Namespace()) }

// breaker reads a breaker once.
func (e *Explainer) breaker(ctx context.Context, name string) (breaker.Status, error) {
	status, ok := e.breakers[name]
	if !ok {
		var err error
		if status, err = breaker.Namespace(e.ns()).Get(ctx, e.rdb, name); err != nil {
			return status, fmt.Errorf("explain: %w", err)
		}
		e.breakers[name] = status
	}
	return status, nil
}

// seenAt is the last heartbeat of a worker that serves the destination.
func (e *Explainer) seenAt(ctx context.Context, destination string) (time.Time, error) {
	if !store.System(destination) {
		return e.seen[destination], nil
	}
	// Destinations leaves out Tidegate's own.
	if seen, ok := e.seen[destination]; ok {
		return seen, nil
	}
	d, err := e.client.Destination(ctx, destination)
	if err != nil && !errors.Is(err, jobs.ErrUnknownDestination) {
		return time.Time{}, fmt.Errorf("explain: %w", err)
	}
	e.seen[destination] = d.SeenAt
	return d.SeenAt, nil
}

// readFleet reads the clock and the workers' heartbeats.
func (e *Explainer) readFleet(ctx context.Context) error {
	if !e.now.IsZero() {
		return nil
	}
	destinations, err := e.client.Destinations(ctx)
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	e.seen = make(map[string]time.Time, len(destinations))
	for _, d := range destinations {
		e.seen[d.Name] = d.SeenAt
	}
	if e.workers, err = e.client.Workers(ctx); err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	now, err := e.client.Now(ctx)
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	e.now = now.Local()
	return nil
}
