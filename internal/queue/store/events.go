package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of a stream.
const (
	// EventsKept bounds the number of entries, EventsKeptFor their age.
	EventsKept    = 100_000
	EventsKeptFor = 24 * time.Hour
	// EventsKeptUnrelayed bounds the age of entries whose callbacks are not made yet,
	// EventsKeptUnrelayedMost their number: a million take some 150 MB.
	EventsKeptUnrelayed     = 72 * time.Hour
	EventsKeptUnrelayedMost = 1_000_000
	// EventsWantedFor is how long a stream exists after the last WantEvents.
	EventsWantedFor = time.Hour
)

var (
	wantEventsScript = redis.NewScript(source("events_want"))
	relayedScript    = redis.NewScript(source("events_relayed"))
	trimEventsScript = redis.NewScript(source("events_trim"))
)

// Event is a terminal event of a job. A job that is retried after it has ended has another.
type Event struct {
	// Stream is the id of the entry: unix milliseconds, a dash and a number.
	Stream string
	// Queue is the asynq queue, ID the job.
	Queue, ID string
	// Status is completed, failed, cancelled or expired.
	Status string
	// At is when, on Redis's clock, to the millisecond.
	At         time.Time
	Key, Batch string
	// Attempt, Reschedules and Crashes as of the job's end.
	Attempt, Reschedules, Crashes int
	// ResponseStatus is the HTTP status of the last answer, 0 without one.
	ResponseStatus int
	// LastError is why it did not complete, up to 300 bytes.
	LastError string
}

// Destination of the job, by its queue.
func (e Event) Destination() string {
	destination, _, _ := ParseQueue(e.Queue)
	return destination
}

// WantEvents keeps the streams for EventsWantedFor from now at least, and returns the id of
// the last entry of each, "" if there was an error. Errors are Redis's.
func WantEvents(ctx context.Context, rdb redis.UniversalClient, queues ...string) (last []string, err error) {
	cmds := evalAll(ctx, rdb, len(queues),
		func(c redis.Scripter, i int) *redis.Cmd { return want(ctx, c, (*redis.Script).EvalSha, queues[i], 0) },
		func(i int) *redis.Cmd { return want(ctx, rdb, (*redis.Script).Run, queues[i], 0) })
	last = make([]string, len(queues))
	for i, cmd := range cmds {
		var problem error
		if last[i], problem = cmd.Text(); problem != nil && err == nil {
			err = fmt.Errorf("store: want the stream of %s: %w", queues[i], problem)
		}
	}
	return last, err
}

// WantRelay is WantEvents of one queue for the relay, which makes callbacks: it keeps entries
// until they are relayed, for EventsKeptUnrelayed after the last call.
func WantRelay(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	if err := want(ctx, rdb, (*redis.Script).Run, queue, EventsKeptUnrelayed).Err(); err != nil {
		return fmt.Errorf("store: want the stream of %s: %w", queue, err)
	}
	return nil
}

type wanting = func(s *redis.Script, ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func want(ctx context.Context, c redis.Scripter, eval wanting, queue string, unrelayed time.Duration) *redis.Cmd {
	keys := []string{EventsKey(queue), EventsWantedKey(queue), EventsRelayedKey(queue)}
	return eval(wantEventsScript, ctx, c, keys, EventsWantedFor.Milliseconds(), unrelayed.Milliseconds())
}

// LastEvent is the id of the last entry; "" of a stream that is empty or does not exist.
// Errors are Redis's.
func LastEvent(ctx context.Context, rdb redis.UniversalClient, queue string) (string, error) {
	newest, err := rdb.XRevRangeN(ctx, EventsKey(queue), "+", "-", 1).Result()
	if err != nil {
		return "", fmt.Errorf("store: read the stream of %s: %w", queue, err)
	}
	if len(newest) == 0 {
		return "", nil
	}
	return newest[0].ID, nil
}

// ReadEvents returns up to n entries after the one with the id after ("" or "0": all),
// oldest first. A stream that does not exist has none. Errors are Redis's.
func ReadEvents(ctx context.Context, rdb redis.UniversalClient, queue, after string, n int) ([]Event, error) {
	messages, err := rdb.XRangeN(ctx, EventsKey(queue), behind(after), "+", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("store: read the stream of %s: %w", queue, err)
	}
	return ParseEvents(queue, messages), nil
}

// QueueRead is ReadEvents in a pipeline; ParseEvents reads its result.
func QueueRead(ctx context.Context, pipe redis.Pipeliner, queue, after string, n int) *redis.XMessageSliceCmd {
	return pipe.XRangeN(ctx, EventsKey(queue), behind(after), "+", int64(n))
}

// QueuesRead is ReadEvents of several queues in one command; of the entries of each after after.
// Queues without further entries are left out. On a Cluster the queues share a slot.
func QueuesRead(ctx context.Context, rdb redis.UniversalClient, queues []string, after map[string]string, n int) (map[string][]redis.XMessage, error) {
	byKey := make(map[string]string, len(queues))
	var streams, ids []string
	for _, q := range queues {
		streams, ids = append(streams, EventsKey(q)), append(ids, cmp.Or(after[q], "0"))
		byKey[EventsKey(q)] = q
	}
	found, err := rdb.XRead(ctx, &redis.XReadArgs{Streams: append(streams, ids...), Count: int64(n), Block: -1}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("store: read the streams: %w", err)
	}
	out := make(map[string][]redis.XMessage, len(found))
	for _, s := range found {
		out[byKey[s.Stream]] = s.Messages
	}
	return out, nil
}

func behind(after string) string {
	if after == "" || after == "0" {
		return "-"
	}
	return "(" + after
}

// ParseEvents makes events of entries. It leaves out entries that are not Tidegate's.
func ParseEvents(queue string, messages []redis.XMessage) []Event {
	out := make([]Event, 0, len(messages))
	for _, m := range messages {
		text := func(name string) string { s, _ := m.Values[name].(string); return s }
		number := func(name string) int { n, _ := strconv.Atoi(text(name)); return n }
		at, err := strconv.ParseInt(text("at"), 10, 64)
		if err != nil || text("id") == "" || text("status") == "" {
			continue
		}
		out = append(out, Event{
			Stream: m.ID, Queue: queue, ID: text("id"), Status: text("status"), At: time.UnixMilli(at).UTC(),
			Key: text(FieldKey), Batch: text(FieldBatch),
			Attempt: number(FieldAttempt), Reschedules: number(FieldReschedules), Crashes: number(FieldCrashes),
			ResponseStatus: number(FieldResponseStatus), LastError: text(FieldLastError),
		})
	}
	return out
}

// Relayed returns the id of the last entry that was relayed, "" if WantRelay was not called.
// Errors are Redis's.
func Relayed(ctx context.Context, rdb redis.UniversalClient, queue string) (string, error) {
	id, err := rdb.Get(ctx, EventsRelayedKey(queue)).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return "", fmt.Errorf("store: read what is relayed of %s: %w", queue, err)
	}
	return id, nil
}

// SetRelayed replaces the id that Relayed returned by a later one. It returns false if
// another relay has replaced it, or holds the lease EventsRelayKey. Errors are Redis's.
func SetRelayed(ctx context.Context, rdb redis.UniversalClient, queue, relay, from, to string) (bool, error) {
	keys := []string{EventsRelayedKey(queue), EventsRelayKey(queue)}
	moved, err := relayedScript.Run(ctx, rdb, keys, to, from, relay, EventsKeptUnrelayed.Milliseconds()).Int()
	if err != nil {
		return false, fmt.Errorf("store: record what is relayed of %s: %w", queue, err)
	}
	return moved == 1, nil
}

// TrimEvents deletes entries beyond the bounds, and streams without a WantEvents for
// EventsWantedFor. It returns how many deleted entries were not
// relayed. Errors are Redis's.
func TrimEvents(ctx context.Context, rdb redis.UniversalClient, queue string) (lost int, err error) {
	return trim(ctx, rdb, queue, EventsKept, EventsKeptUnrelayedMost)
}

func trim(ctx context.Context, rdb redis.UniversalClient, queue string, kept, keptUnrelayed int) (lost int, err error) {
	keys := []string{EventsKey(queue), EventsWantedKey(queue), EventsRelayedKey(queue)}
	for {
		gone, err := trimEventsScript.Run(ctx, rdb, keys, kept, EventsKeptFor.Milliseconds(), EventsKeptUnrelayed.Milliseconds(), keptUnrelayed, trimmedAtOnce).Int64Slice()
		if err == nil && len(gone) != 2 {
			err = fmt.Errorf("reply has %d values, want 2", len(gone))
		}
		if err != nil {
			return lost, fmt.Errorf("store: trim the stream of %s: %w", queue, err)
		}
		lost += int(gone[1])
		if gone[0] < trimmedAtOnce {
			return lost, nil
		}
	}
}

// trimmedAtOnce bounds a step, so that it does not block Redis for long.
const trimmedAtOnce = 5000
