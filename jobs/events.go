package jobs

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/store"
)

const (
	// eventsEvery is how often all queues are read, in case a message was lost, eventsPace the shortest time
	// between two reads of a queue.
	eventsEvery, eventsPace = 5 * time.Second, 20 * time.Millisecond
	// eventsAgain is the pause after an error.
	eventsAgain = 500 * time.Millisecond
	// eventsAtOnce is how many events of a queue are read at once.
	eventsAtOnce = 500
)

// Event is the end of a job. A job that is retried after it has ended has another one.
type Event struct {
	// ID is the same at each delivery.
	ID string
	// Job is the job's id.
	Job, Destination, Key, Batch string
	// Status is Completed, Failed, Cancelled or Expired.
	Status Status
	// At is when, on Redis's clock.
	At time.Time
	// Attempt and RescheduleCount: see [Job].
	Attempt, RescheduleCount int
	// Response is the latest one, nil if there was none. Its Body is empty without
	// [EventsOptions.Responses], and if the job is not kept any more; it has up to 4096 bytes.
	Response *Response
	// LastError is why the job did not complete, up to 300 bytes.
	LastError string
}

// EventsOptions select events.
type EventsOptions struct {
	// Destination of the jobs; "": all but Tidegate's own.
	Destination string
	// Since is the time of the first event, such as At of the last one that was handled, which comes again; zero:
	// now. Redis keeps 100,000 events of a destination and priority for 24 hours, if there was a subscriber in the
	// hour before.
	Since time.Time
	// Responses reads the bodies of responses, too.
	Responses bool
}

// Events subscribes to the ends of jobs, as GET /v1/events of the HTTP API does. They are in the order of time for each
// destination and priority, and come within milliseconds. The sequence ends with ctx; it may be ranged over once. After
// an error, of Redis, it continues where it was, unless the loop ends. Errors: ErrInvalid, or Redis's.
//
// The user of Redis needs +subscribe, and the channel of events (&tidegate:*).
func (c *Client) Events(ctx context.Context, o EventsOptions) (iter.Seq2[Event, error], error) {
	if o.Destination != "" && !ValidDestination(o.Destination) {
		return nil, &ValidationError{Fields: []FieldError{{"destination", fmt.Sprintf(destinationRule, clip(o.Destination))}}}
	}
	from := o.Since
	if from.IsZero() {
		var err error
		if from, err = c.Now(ctx); err != nil {
			return nil, err
		}
	}
	r := &eventReader{c: c, o: o, from: strconv.FormatInt(max(0, from.UnixMilli()-1), 10), last: map[string]string{}, wanted: map[string]time.Time{}}
	if _, err := r.want(ctx); err != nil {
		return nil, fmt.Errorf("jobs: events: %w", err)
	}
	return func(yield func(Event, error) bool) { r.run(ctx, yield) }, nil
}

// eventReader reads the streams of queues.
type eventReader struct {
	c      *Client
	o      EventsOptions
	from   string               // where streams are read from
	last   map[string]string    // entry read last, by queue
	wanted map[string]time.Time // when a stream was requested, by queue
}

func (r *eventReader) run(ctx context.Context, yield func(Event, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	news := store.NewNews()
	listening.Go(func() {
		news.Listen(ctx, r.c.rdb.(prompt).rdb, r.c.ns.EventsChannel()) //nolint:forcetypeassert // NewClient makes it
	})
	polled := time.Time{} // the last read of all
	for {
		began := time.Now()
		queues, _, all := news.Take(began)
		var found []store.Event
		var more bool
		var err error
		if all || began.Sub(polled) >= eventsEvery {
			polled = began
			queues, err = r.want(ctx)
		}
		if err == nil {
			found, more, err = r.read(ctx, queues)
		}
		for part := range slices.Chunk(found, recordsAtOnce) {
			events, problem := r.events(ctx, part)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if problem != nil {
				err = problem
			}
		}
		pause := time.Until(polled.Add(eventsEvery))
		if more || err != nil {
			news.Resync()
		}
		if err != nil {
			if ctx.Err() != nil || !yield(Event{}, fmt.Errorf("jobs: events: %w", err)) {
				return
			}
			pause = eventsAgain
		}
		if !news.Wait(ctx, began, pause, eventsPace, err == nil) {
			return
		}
	}
}

// want has the streams written for another hour, and returns their queues.
func (r *eventReader) want(ctx context.Context) (queues []string, err error) {
	names := []Destination{{Name: r.o.Destination}}
	if r.o.Destination == "" {
		if names, err = r.c.Destinations(ctx); err != nil {
			return nil, err
		}
	}
	var unwanted []string
	for _, d := range names {
		for _, q := range r.c.ns.Queues(d.Name) {
			queues = append(queues, q)
			if _, known := r.last[q]; !known {
				r.last[q] = r.from
			}
			if time.Since(r.wanted[q]) > store.EventsWantedFor/4 {
				unwanted = append(unwanted, q)
			}
		}
	}
	if len(unwanted) > 0 {
		if _, err = store.WantEvents(ctx, r.c.rdb, unwanted...); err != nil {
			return nil, err
		}
	}
	for _, q := range unwanted {
		r.wanted[q] = time.Now()
	}
	return queues, nil
}

// read returns the next events of queues, in the order of time; more: there are more.
func (r *eventReader) read(ctx context.Context, queues []string) (events []store.Event, more bool, err error) {
	queues = slices.DeleteFunc(queues, func(q string) bool { return r.last[q] == "" })
	if len(queues) == 0 {
		return nil, false, nil
	}
	found, err := redispipe.Each(ctx, r.c.rdb, queues, func(pipe redis.Pipeliner, q string) *redis.XMessageSliceCmd {
		return store.QueueRead(ctx, pipe, q, r.last[q], eventsAtOnce)
	})
	if err != nil {
		return nil, false, err
	}
	for i, q := range queues {
		if messages := found[i].Val(); len(messages) > 0 {
			r.last[q] = messages[len(messages)-1].ID
			more = more || len(messages) == eventsAtOnce
			events = append(events, store.ParseEvents(q, messages)...)
		}
	}
	slices.SortStableFunc(events, func(a, b store.Event) int { return a.At.Compare(b.At) })
	return events, more, nil
}

// events adds the bodies of responses. An error is about these.
func (r *eventReader) events(ctx context.Context, found []store.Event) (events []Event, err error) {
	keys := make([]string, len(found))
	for i, e := range found {
		keys[i] = store.TaskKey(e.Queue, e.ID)
		_, priority, _ := store.ParseQueue(e.Queue)
		one := Event{
			ID: e.Stream + ":" + e.Destination() + ":" + string(priority), Job: e.ID, Destination: e.Destination(), Key: e.Key, Batch: e.Batch,
			Status: Status(e.Status), At: e.At, Attempt: e.Attempt, RescheduleCount: e.Reschedules, LastError: e.LastError,
		}
		if e.ResponseStatus != 0 {
			one.Response = &Response{Status: e.ResponseStatus}
		}
		events = append(events, one)
	}
	if !r.o.Responses {
		return events, nil
	}
	fields, _, err := store.Outlines(ctx, r.c.rdb, keys, []string{store.FieldResponseStatus, store.FieldResponseBody})
	for i, f := range fields {
		var job Job
		if job.apply(f); job.Response != nil && events[i].Response != nil {
			events[i].Response = job.Response
		}
	}
	return events, err
}
