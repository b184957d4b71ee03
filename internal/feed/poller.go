package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Bounds and intervals of polls.
const (
	jobEventsAtOnce = 500
	transitionsRead = 1000             // maximum stored per destination
	namesFor        = 10 * time.Second // how long destinations are cached
	wantEvery       = store.EventsWantedFor / 4
	wantAgain       = 10 * time.Second // after an error
)

// poller reads the events since its last poll.
type poller struct {
	rdb    redis.UniversalClient
	ns     store.Namespace
	client *jobs.Client

	names        []string // of destinations
	namesAt      time.Time
	wantedAt     map[string]time.Time // by queue
	unsubscribed error                // why streams may be missing; nil if they are not
	unread       error                // why a destination could not be read at the last poll
	last         map[string]string    // last entry read, by queue
	seen         map[string]uint64    // generation of the last transition read, by destination
	paused       map[string]bool      // by destination
}

func newPoller(rdb redis.UniversalClient, client *jobs.Client) *poller {
	return &poller{
		rdb: rdb, ns: store.Namespace(client.Namespace()), client: client, wantedAt: map[string]time.Time{}, last: map[string]string{},
		seen: map[string]uint64{}, paused: map[string]bool{},
	}
}

// poll returns the events since the last poll, in the order of time; more reports that there
// are more to read at once. It fails if no destination could be read; the next poll reads what
// this poll could not.
func (w *poller) poll(ctx context.Context) (events []Event, more bool, err error) {
	if time.Since(w.namesAt) > namesFor {
		known, err := w.client.Destinations(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("feed: %w", err)
		}
		w.names, w.namesAt = nil, time.Now()
		for _, d := range known {
			w.names = append(w.names, d.Name)
		}
	}
	seen := 0
	for _, name := range w.names {
		some, full, problem := w.jobEvents(ctx, name)
		events, more, err = append(events, some...), more || full, cmp.Or(err, problem)
		if problem == nil {
			some, problem = w.transitions(ctx, name)
			events, err = append(events, some...), cmp.Or(err, problem)
		}
		if problem == nil {
			seen++
		}
	}
	inOrder(events)
	if w.unread = err; seen > 0 {
		err = nil // the others were read
	}
	return events, more, err
}

func inOrder(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
}

// want requests that the stream of a queue is written, and begins at its end. If Redis refuses
// writes, such as when it is full, an existing stream is read.
func (w *poller) want(ctx context.Context, queue string) error {
	var last string
	all, err := store.WantEvents(ctx, w.rdb, queue)
	if w.unsubscribed = err; err == nil {
		last = all[0]
		w.wantedAt[queue] = time.Now()
	} else {
		if last, err = store.LastEvent(ctx, w.rdb, queue); err != nil {
			return err
		}
		w.wantedAt[queue] = time.Now().Add(wantAgain - wantEvery)
	}
	if _, known := w.last[queue]; !known {
		w.last[queue] = last
	}
	return nil
}

// jobEvents reads the finished jobs of a destination, and whether it was paused or resumed.
// full reports whether there are more.
func (w *poller) jobEvents(ctx context.Context, name string) (events []Event, full bool, err error) {
	queues := w.ns.Queues(name)
	for _, q := range queues {
		if time.Since(w.wantedAt[q]) < wantEvery {
			continue
		}
		if err := w.want(ctx, q); err != nil {
			return nil, false, fmt.Errorf("feed: %w", err)
		}
	}
	found := make([]*redis.XMessageSliceCmd, len(queues))
	var paused *redis.IntCmd
	_, err = w.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, q := range queues {
			found[i] = store.QueueRead(ctx, pipe, q, w.last[q], jobEventsAtOnce)
		}
		paused = pipe.Exists(ctx, store.PausedKey(queues[0]))
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("feed: read job events of %s: %w", name, err)
	}
	for i, q := range queues {
		messages := found[i].Val()
		if len(messages) == 0 {
			continue
		}
		w.last[q] = messages[len(messages)-1].ID
		full = full || len(messages) == jobEventsAtOnce
		for _, e := range store.ParseEvents(q, messages) {
			events = append(events, jobEvent(e))
		}
	}
	is := paused.Val() > 0
	was, known := w.paused[name]
	w.paused[name] = is
	if known && was != is {
		now, err := w.client.Now(ctx)
		if err != nil {
			w.paused[name] = was // the next poll sees it
			return events, full, fmt.Errorf("feed: %w", err)
		}
		events = append(events, pauseEvent(name, is, now))
	}
	return events, full, nil
}

// transitions reads the transitions of a destination's breakers, its own and those of keys,
// since the first poll. Where some are missing, a gap comes first.
func (w *poller) transitions(ctx context.Context, name string) ([]Event, error) {
	after, known := w.seen[name]
	limit := transitionsRead
	if !known {
		limit = 1
	}
	t, err := breaker.Namespace(w.ns).ReadTransitions(ctx, w.rdb, name, after, limit)
	if err != nil {
		return nil, fmt.Errorf("feed: %w", err)
	}
	w.seen[name] = t.Last
	// Without a transition at the first poll, the next one is the first ever.
	if !known || len(t.Events) == 0 && !t.Missed {
		return nil, nil
	}
	var events []Event
	if t.Missed {
		now, err := w.client.Now(ctx)
		if err != nil {
			w.seen[name] = after // the next poll sees it
			return nil, fmt.Errorf("feed: %w", err)
		}
		at := now
		if len(t.Events) > 0 {
			at = t.Events[0].At // in front of it
		}
		events = append(events, gapEvent(name, at))
	}
	for _, e := range t.Events {
		events = append(events, breakerEvent(e))
	}
	return events, nil
}

func jobEvent(e store.Event) Event {
	destination, priority, _ := store.ParseQueue(e.Queue)
	data, _ := json.Marshal(jobData{
		ID: e.ID, Destination: destination, Key: e.Key, Batch: e.Batch, Status: e.Status, At: e.At,
		Attempt: e.Attempt, Reschedules: e.Reschedules, ResponseStatus: e.ResponseStatus, LastError: e.LastError,
	})
	return Event{
		ID: e.Stream + ":" + destination + ":" + string(priority), Type: JobPrefix + e.Status,
		Destination: destination, At: e.At, Data: data,
	}
}

// jobData is the Data of a job event.
type jobData struct {
	ID             string    `json:"id"`
	Destination    string    `json:"destination"`
	Key            string    `json:"key"`
	Batch          string    `json:"batch"`
	Status         string    `json:"status"`
	At             time.Time `json:"at"`
	Attempt        int       `json:"attempt"`
	Reschedules    int       `json:"reschedule_count"`
	ResponseStatus int       `json:"response_status"`
	LastError      string    `json:"last_error"`
}

func breakerEvent(e breaker.Event) Event {
	data, _ := json.Marshal(e)
	destination, _, _ := strings.Cut(e.Name, "/")
	return Event{
		ID:   strconv.FormatInt(e.At.UnixMilli(), 10) + "-" + strconv.FormatUint(e.Generation, 10) + ":breaker:" + e.Name,
		Type: Breaker, Destination: destination, At: e.At, Data: data,
	}
}

func pauseEvent(name string, paused bool, at time.Time) Event {
	data, _ := json.Marshal(map[string]any{"destination": name, "paused": paused, "at": at.UTC()})
	return Event{
		ID:   strconv.FormatInt(at.UnixMilli(), 10) + "-0:destination:" + name,
		Type: Destination, Destination: name, At: at, Data: data,
	}
}

// gapEvent reports missing transitions of a destination's breakers.
func gapEvent(name string, at time.Time) Event {
	return Event{
		ID:   strconv.FormatInt(at.UnixMilli(), 10) + "-0:gap:" + name,
		Type: Gap, At: at, Data: json.RawMessage(gapBesideJobs),
	}
}

// idForm is the form of ids of events, which clients send back.
var idForm = regexp.MustCompile(`^([0-9]{1,15})-[0-9]{1,20}:[A-Za-z0-9._:@/-]{1,300}$`)

// instantOf is when the event with the id happened.
func instantOf(id string) (time.Time, bool) {
	m := idForm.FindStringSubmatch(id)
	if m == nil {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	return time.UnixMilli(ms), err == nil
}
