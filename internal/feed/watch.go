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

// How much is read at once, and how often what changes seldom.
const (
	endsAtOnce      = 500
	transitionsRead = 1000 // all that are kept of a destination
	rememberNames   = 10 * time.Second
	wantEvery       = store.EventsWantedFor / 4
	wantAgain       = 10 * time.Second // after an error
)

// watcher sees what is new since its last look.
type watcher struct {
	rdb    redis.UniversalClient
	client *jobs.Client

	names    []string // of destinations
	namesAt  time.Time
	wantedAt map[string]time.Time // by queue
	unwanted error                // why streams may be missing; nil if they are not
	unseen   error                // why a destination could not be seen at the last look
	last     map[string]string    // last entry seen, by queue
	seen     map[string]uint64    // generation of the last transition seen, by destination
	paused   map[string]bool      // by destination
}

func newWatcher(rdb redis.UniversalClient, client *jobs.Client) *watcher {
	return &watcher{
		rdb: rdb, client: client, wantedAt: map[string]time.Time{}, last: map[string]string{},
		seen: map[string]uint64{}, paused: map[string]bool{},
	}
}

// look returns what has happened since the last look, in the order of time; more says
// that there is more to see at once. The error is that no destination could be seen; of
// those that could not it sees the rest next time.
func (w *watcher) look(ctx context.Context) (events []Event, more bool, err error) {
	if time.Since(w.namesAt) > rememberNames {
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
		some, full, problem := w.newEnds(ctx, name)
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
	if w.unseen = err; seen > 0 {
		err = nil // the others are told of
	}
	return events, more, err
}

func inOrder(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
}

// want sees to it that the stream of a queue exists, and begins at its end. Where Redis
// takes no writes, because it is full for instance, what exists is read all the same.
func (w *watcher) want(ctx context.Context, queue string) error {
	var last string
	all, err := store.WantEvents(ctx, w.rdb, queue)
	if w.unwanted = err; err == nil {
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

// newEnds sees which jobs of a destination have ended, and whether it was paused or
// resumed. full says that there are more ends.
func (w *watcher) newEnds(ctx context.Context, name string) (events []Event, full bool, err error) {
	queues := store.Queues(name)
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
			found[i] = store.QueueRead(ctx, pipe, q, w.last[q], endsAtOnce)
		}
		paused = pipe.Exists(ctx, store.PausedKey(queues[0]))
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("feed: read ends of %s: %w", name, err)
	}
	for i, q := range queues {
		messages := found[i].Val()
		if len(messages) == 0 {
			continue
		}
		w.last[q] = messages[len(messages)-1].ID
		full = full || len(messages) == endsAtOnce
		for _, e := range store.ParseEvents(q, messages) {
			events = append(events, ofEnd(e))
		}
	}
	is := paused.Val() > 0
	was, known := w.paused[name]
	w.paused[name] = is
	if known && was != is {
		now, err := w.client.Now(ctx)
		if err != nil {
			w.paused[name] = was // it is seen again
			return events, full, fmt.Errorf("feed: %w", err)
		}
		events = append(events, ofPause(name, is, now))
	}
	return events, full, nil
}

// transitions sees what the breakers of a destination did, its own and those of keys. What
// was before the first look is not told. Where some are missing, a gap comes first.
func (w *watcher) transitions(ctx context.Context, name string) ([]Event, error) {
	after, known := w.seen[name]
	limit := transitionsRead
	if !known {
		limit = 1
	}
	t, err := breaker.ReadTransitions(ctx, w.rdb, name, after, limit)
	if err != nil {
		return nil, fmt.Errorf("feed: %w", err)
	}
	w.seen[name] = t.Last
	// Without a transition at the first look, the next one is the first ever.
	if !known || len(t.Events) == 0 && !t.Missed {
		return nil, nil
	}
	var events []Event
	if t.Missed {
		now, err := w.client.Now(ctx)
		if err != nil {
			w.seen[name] = after // it is seen again
			return nil, fmt.Errorf("feed: %w", err)
		}
		at := now
		if len(t.Events) > 0 {
			at = t.Events[0].At // in front of it
		}
		events = append(events, ofGap(name, at))
	}
	for _, e := range t.Events {
		events = append(events, ofTransition(e))
	}
	return events, nil
}

func ofEnd(e store.Event) Event {
	destination, priority, _ := store.ParseQueue(e.Queue)
	data, _ := json.Marshal(endData{
		ID: e.ID, Destination: destination, Key: e.Key, Batch: e.Batch, Status: e.Status, At: e.At,
		Attempt: e.Attempt, Reschedules: e.Reschedules, ResponseStatus: e.ResponseStatus, LastError: e.LastError,
	})
	return Event{
		ID: e.Stream + ":" + destination + ":" + string(priority), Type: JobPrefix + e.Status,
		Destination: destination, At: e.At, Data: data,
	}
}

// endData is what an event says of a job's end.
type endData struct {
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

func ofTransition(e breaker.Event) Event {
	data, _ := json.Marshal(e)
	destination, _, _ := strings.Cut(e.Name, "/")
	return Event{
		ID:   strconv.FormatInt(e.At.UnixMilli(), 10) + "-" + strconv.FormatUint(e.Generation, 10) + ":breaker:" + e.Name,
		Type: Breaker, Destination: destination, At: e.At, Data: data,
	}
}

func ofPause(name string, paused bool, at time.Time) Event {
	data, _ := json.Marshal(map[string]any{"destination": name, "paused": paused, "at": at.UTC()})
	return Event{
		ID:   strconv.FormatInt(at.UnixMilli(), 10) + "-0:destination:" + name,
		Type: Destination, Destination: name, At: at, Data: data,
	}
}

// ofGap says that some transitions of a destination's breakers are missing.
func ofGap(name string, at time.Time) Event {
	return Event{
		ID:   strconv.FormatInt(at.UnixMilli(), 10) + "-0:gap:" + name,
		Type: Gap, At: at, Data: json.RawMessage(gapBesideJobs),
	}
}

// idForm is that of the ids of events. They go back to whom they came from: nothing
// else is taken for one.
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
