package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Bounds and intervals of polls.
const (
	jobEventsAtOnce = 500
	streamsAtOnce   = 1000             // of one XREAD
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
	apart        bool                 // one command cannot read several queues: slots, or rights
	last         map[string]string    // last entry read, by queue
	seen         map[string]uint64    // generation of the last transition read, by destination
	paused       map[string]bool      // by destination
}

func newPoller(rdb redis.UniversalClient, client *jobs.Client) *poller {
	_, cluster := rdb.(*redis.ClusterClient)
	return &poller{
		rdb: rdb, ns: store.Namespace(client.Namespace()), client: client, wantedAt: map[string]time.Time{}, last: map[string]string{},
		seen: map[string]uint64{}, paused: map[string]bool{}, apart: cluster,
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
	var queues []string
	for _, name := range w.names {
		queues = append(queues, w.ns.Queues(name)...)
	}
	problems := problems{}
	w.want(ctx, queues, problems)
	events, more = w.jobEvents(ctx, queues, problems)
	events = append(events, w.changes(ctx, w.names, problems)...)
	inOrder(events)
	if w.unread = problems.first(w.names); len(problems) < len(w.names) {
		return events, more, nil // the others were read
	}
	return events, more, w.unread
}

// look is poll for the streams of some queues, and the breakers and pauses of some destinations.
// Those that a poll has not read yet are left out.
func (w *poller) look(ctx context.Context, queues, names []string) (events []Event, more bool, err error) {
	problems := problems{}
	events, more = w.jobEvents(ctx, slices.DeleteFunc(queues, func(q string) bool { _, known := w.last[q]; return !known }), problems)
	names = slices.DeleteFunc(names, func(name string) bool { _, known := w.seen[name]; return !known })
	events = append(events, w.changes(ctx, names, problems)...)
	inOrder(events)
	for _, problem := range problems {
		err = problem
	}
	return events, more, err
}

// problems are why destinations could not be read, by name.
type problems map[string]error

func (p problems) add(name string, err error) {
	if err != nil && p[name] == nil {
		p[name] = fmt.Errorf("feed: %w", err)
	}
}

func (p problems) addQueue(queue string, err error) {
	name, _, _ := store.ParseQueue(queue)
	p.add(name, err)
}

func (p problems) first(names []string) error {
	for _, name := range names {
		if err := p[name]; err != nil {
			return err
		}
	}
	return nil
}

func inOrder(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
}

// want requests that the streams of queues are written, which begin at their ends. If Redis
// refuses writes, such as when it is full, existing streams are read.
func (w *poller) want(ctx context.Context, queues []string, problems problems) {
	queues = slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return time.Since(w.wantedAt[q]) < wantEvery })
	if len(queues) == 0 {
		return
	}
	var last []string
	last, w.unsubscribed = store.WantEvents(ctx, w.rdb, queues...)
	for i, q := range queues {
		if last[i] != "" {
			w.wantedAt[q] = time.Now()
		} else {
			var err error
			if last[i], err = store.LastEvent(ctx, w.rdb, q); err != nil {
				problems.addQueue(q, err)
				continue
			}
			w.wantedAt[q] = time.Now().Add(wantAgain - wantEvery)
		}
		if _, known := w.last[q]; !known {
			w.last[q] = last[i]
		}
	}
}

// jobEvents reads the finished jobs of queues. more reports whether there are more.
func (w *poller) jobEvents(ctx context.Context, queues []string, problems problems) (events []Event, more bool) {
	queues = slices.DeleteFunc(slices.Clone(queues), func(q string) bool { _, known := w.last[q]; return !known })
	take := func(q string, messages []redis.XMessage) {
		if len(messages) == 0 {
			return
		}
		w.last[q] = messages[len(messages)-1].ID
		more = more || len(messages) == jobEventsAtOnce
		for _, e := range store.ParseEvents(q, messages) {
			events = append(events, jobEvent(e))
		}
	}
	for part := range slices.Chunk(queues, streamsAtOnce) {
		if !w.apart {
			found, err := store.QueuesRead(ctx, w.rdb, part, w.last, jobEventsAtOnce)
			for q, messages := range found {
				take(q, messages)
			}
			w.apart = isReply(err)
			if !w.apart {
				for _, q := range part {
					problems.addQueue(q, err)
				}
				continue
			}
		}
		found, _ := redispipe.Each(ctx, w.rdb, part, func(pipe redis.Pipeliner, q string) *redis.XMessageSliceCmd { // each command has its own error
			return store.QueueRead(ctx, pipe, q, w.last[q], jobEventsAtOnce)
		})
		for i, q := range part {
			take(q, found[i].Val())
			problems.addQueue(q, found[i].Err())
		}
	}
	return events, more
}

// isReply reports whether err is an answer of Redis: the next command may have another.
func isReply(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return reply && !errors.Is(err, redis.Nil)
}

// changes reads whether destinations were paused or resumed, and the transitions of their
// breakers, unless they have problems.
func (w *poller) changes(ctx context.Context, names []string, problems problems) (events []Event) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return problems[name] != nil })
	if len(names) == 0 {
		return nil
	}
	paused, errs := w.readPauses(ctx, names)
	last, errs2 := breaker.Namespace(w.ns).LastTransitions(ctx, w.rdb, names)
	for i, name := range names {
		problems.add(name, errs[i])
		problems.add(name, errs2[i])
		if problems[name] != nil {
			continue
		}
		if was, known := w.paused[name]; known && was != paused[i] {
			now, err := w.client.Now(ctx)
			if err != nil {
				problems.add(name, err) // the next poll sees it
				continue
			}
			events = append(events, pauseEvent(name, paused[i], now))
		}
		w.paused[name] = paused[i]
		seen, known := w.seen[name]
		if !known {
			w.seen[name] = last[i]
		}
		if !known || seen == last[i] {
			continue
		}
		some, err := w.transitions(ctx, name)
		problems.add(name, err)
		events = append(events, some...)
	}
	return events
}

// readPauses reports which destinations are paused.
func (w *poller) readPauses(ctx context.Context, names []string) (paused []bool, errs []error) {
	paused, errs = make([]bool, len(names)), make([]error, len(names))
	key := func(name string) string { return store.PausedKey(w.ns.Queues(name)[0]) }
	if !w.apart {
		keys := make([]string, len(names))
		for i, name := range names {
			keys[i] = key(name)
		}
		values, err := w.rdb.MGet(ctx, keys...).Result()
		if !isReply(err) {
			for i := range names {
				errs[i] = err
				paused[i] = err == nil && values[i] != nil
			}
			return paused, errs
		}
	}
	cmds, _ := redispipe.Each(ctx, w.rdb, names, func(pipe redis.Pipeliner, name string) *redis.IntCmd { // each command has its own error
		return pipe.Exists(ctx, key(name))
	})
	for i, cmd := range cmds {
		paused[i], errs[i] = cmd.Val() > 0, cmd.Err()
	}
	return paused, errs
}

// transitions reads the transitions of a destination's breakers, its own and its keys', since the
// last poll. Where some are missing, a gap comes first.
func (w *poller) transitions(ctx context.Context, name string) ([]Event, error) {
	after := w.seen[name]
	transitions, last, missed, err := breaker.Namespace(w.ns).ReadTransitions(ctx, w.rdb, name, after, transitionsRead)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the operation
	}
	w.seen[name] = last
	var events []Event
	if missed {
		now, err := w.client.Now(ctx)
		if err != nil {
			w.seen[name] = after // the next poll sees it
			return nil, err      //nolint:wrapcheck // it names the operation
		}
		at := now
		if len(transitions) > 0 {
			at = transitions[0].At // in front of it
		}
		events = append(events, Event{ID: strconv.FormatInt(at.UnixMilli(), 10) + "-0:gap:" + name, Type: Gap, At: at, Data: json.RawMessage(gapBesideJobs)})
	}
	for _, e := range transitions {
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
		Destination: destination, At: e.At, Data: data, queue: e.Queue, job: e.ID, batch: e.Batch, key: e.Key,
	}
}

// AddResponses adds to the Data of events of jobs their response, in one round trip: the latest one, its body up to
// 4096 bytes; null if there was none, or the job is not kept any more. Other events stay as they are. Errors: Redis's.
func (h *Hub) AddResponses(ctx context.Context, events []Event) error {
	var keys []string
	var of []*Event
	for i := range events {
		if e := &events[i]; e.job != "" {
			keys, of = append(keys, store.TaskKey(e.queue, e.job)), append(of, e)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	fields, _, err := store.Outlines(ctx, h.rdb, keys, []string{store.FieldResponseStatus, store.FieldResponseBody})
	if err != nil {
		return fmt.Errorf("feed: %w", err)
	}
	for i, e := range of {
		var response *jobs.Response
		if status, err := strconv.Atoi(fields[i][store.FieldResponseStatus]); err == nil {
			response = &jobs.Response{Status: status}
			response.ContentType, _, response.Body, _, _ = store.ParseGatewayBody(fields[i][store.FieldResponseBody])
		}
		added, _ := json.Marshal(response)
		e.Data = slices.Concat(e.Data[:len(e.Data)-1], []byte(`,"response":`), added, []byte("}"))
	}
	return nil
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
