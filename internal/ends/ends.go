// Package ends reads the streams of the ends of jobs: one of each queue, to which the
// script that ends a job appends in the same step. A stream exists only while somebody
// wants it, so that who wants none pays nothing; see docs/callbacks.md for its form.
package ends

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// What is kept of a stream.
const (
	// Kept and KeptFor bound what is kept: entries, and their age.
	Kept    = 100_000
	KeptFor = 24 * time.Hour
	// KeptUntold bounds the age of entries of which callbacks are still to be made, and
	// KeptUntoldMost their number: a million take some 150 MB.
	KeptUntold     = 72 * time.Hour
	KeptUntoldMost = 1_000_000
	// WantedFor is how long a stream exists after the last Want.
	WantedFor = time.Hour
)

//go:embed lua/*.lua
var sources embed.FS

func script(name string) *redis.Script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded
	}
	return redis.NewScript(string(source))
}

var (
	wantScript = script("want")
	toldScript = script("told")
	trimScript = script("trim")
)

// End is one end of a job. A job that is retried after it has ended ends again.
type End struct {
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
	// LastError says why it did not complete, up to 300 bytes.
	LastError string
}

// Destination of the job, by its queue.
func (e End) Destination() string {
	destination, _, _ := record.ParseQueue(e.Queue)
	return destination
}

// Want sees to it that the streams exist, for WantedFor from now at least, and returns
// the id of each one's last entry. Errors: Redis's.
func Want(ctx context.Context, rdb redis.UniversalClient, queues ...string) ([]string, error) {
	last := make([]string, len(queues))
	for i, q := range queues {
		id, err := want(ctx, rdb, q, 0)
		if err != nil {
			return nil, err
		}
		last[i] = id
	}
	return last, nil
}

// WantTold is Want of one queue for who makes callbacks of it: what ends from the first
// one on is to be told, until nobody has said so for KeptUntold.
func WantTold(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	_, err := want(ctx, rdb, queue, KeptUntold)
	return err
}

func want(ctx context.Context, rdb redis.UniversalClient, queue string, told time.Duration) (string, error) {
	keys := []string{record.Ends(queue), record.EndsWanted(queue), record.EndsTold(queue)}
	id, err := wantScript.Run(ctx, rdb, keys, WantedFor.Milliseconds(), told.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("ends: want the stream of %s: %w", queue, err)
	}
	return id, nil
}

// Last is the id of the last entry; "" of a stream that is empty or does not exist.
// Errors: Redis's.
func Last(ctx context.Context, rdb redis.UniversalClient, queue string) (string, error) {
	newest, err := rdb.XRevRangeN(ctx, record.Ends(queue), "+", "-", 1).Result()
	if err != nil {
		return "", fmt.Errorf("ends: read the stream of %s: %w", queue, err)
	}
	if len(newest) == 0 {
		return "", nil
	}
	return newest[0].ID, nil
}

// Read returns up to n entries behind the one called after ("" or "0": from the first
// that is kept), oldest first. A stream that does not exist has none. Errors: Redis's.
func Read(ctx context.Context, rdb redis.UniversalClient, queue, after string, n int) ([]End, error) {
	messages, err := rdb.XRangeN(ctx, record.Ends(queue), behind(after), "+", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("ends: read the stream of %s: %w", queue, err)
	}
	return Parse(queue, messages), nil
}

// Queue asks in a pipeline for what Read returns; see Parse.
func Queue(ctx context.Context, pipe redis.Pipeliner, queue, after string, n int) *redis.XMessageSliceCmd {
	return pipe.XRangeN(ctx, record.Ends(queue), behind(after), "+", int64(n))
}

func behind(after string) string {
	if after == "" || after == "0" {
		return "-"
	}
	return "(" + after
}

// Parse makes ends of entries; those of others are passed over.
func Parse(queue string, messages []redis.XMessage) []End {
	out := make([]End, 0, len(messages))
	for _, m := range messages {
		text := func(name string) string { s, _ := m.Values[name].(string); return s }
		number := func(name string) int { n, _ := strconv.Atoi(text(name)); return n }
		at, err := strconv.ParseInt(text("at"), 10, 64)
		if err != nil || text("id") == "" || text("status") == "" {
			continue
		}
		out = append(out, End{
			Stream: m.ID, Queue: queue, ID: text("id"), Status: text("status"), At: time.UnixMilli(at).UTC(),
			Key: text(record.FieldKey), Batch: text(record.FieldBatch),
			Attempt: number(record.FieldAttempt), Reschedules: number(record.FieldReschedules), Crashes: number(record.FieldCrashes),
			ResponseStatus: number(record.FieldResponseStatus), LastError: text(record.FieldLastError),
		})
	}
	return out
}

// Told is the id of the last entry of which callbacks have been made, "" if nobody has
// asked for them; see WantTold. Errors: Redis's.
func Told(ctx context.Context, rdb redis.UniversalClient, queue string) (string, error) {
	id, err := rdb.Get(ctx, record.EndsTold(queue)).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return "", fmt.Errorf("ends: read how far %s is told: %w", queue, err)
	}
	return id, nil
}

// SetTold moves the mark from the entry that Told gave to a later one. false: another
// relay has moved it, or has the lease record.EndsRelay now. Errors: Redis's.
func SetTold(ctx context.Context, rdb redis.UniversalClient, queue, who, from, to string) (bool, error) {
	keys := []string{record.EndsTold(queue), record.EndsRelay(queue)}
	moved, err := toldScript.Run(ctx, rdb, keys, to, from, who, KeptUntold.Milliseconds()).Int()
	if err != nil {
		return false, fmt.Errorf("ends: mark how far %s is told: %w", queue, err)
	}
	return moved == 1, nil
}

// Trim forgets entries that are too many or too old, and streams that nobody wants any
// more: no process of ours for WantedFor, and no consumer group. lost is how many went of
// which callbacks were still to be made. Errors: Redis's.
func Trim(ctx context.Context, rdb redis.UniversalClient, queue string) (lost int, err error) {
	return trim(ctx, rdb, queue, Kept, KeptUntoldMost)
}

func trim(ctx context.Context, rdb redis.UniversalClient, queue string, kept, keptUntold int) (lost int, err error) {
	keys := []string{record.Ends(queue), record.EndsWanted(queue), record.EndsTold(queue)}
	for {
		gone, err := trimScript.Run(ctx, rdb, keys, kept, KeptFor.Milliseconds(), KeptUntold.Milliseconds(), keptUntold, trimmedAtOnce).Int64Slice()
		if err == nil && len(gone) != 2 {
			err = fmt.Errorf("reply has %d values, want 2", len(gone))
		}
		if err != nil {
			return lost, fmt.Errorf("ends: trim the stream of %s: %w", queue, err)
		}
		lost += int(gone[1])
		if gone[0] < trimmedAtOnce {
			return lost, nil
		}
	}
}

// trimmedAtOnce is below what Redis drops of a stream at once, so that no step takes it
// long: where it has dropped so many there may be more.
const trimmedAtOnce = 5000
