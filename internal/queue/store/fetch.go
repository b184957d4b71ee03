package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	fetchScript   = script("fetch")
	reclaimScript = script("reclaim")
)

// FetchArgs say what to fetch for which worker.
type FetchArgs struct {
	Queue string
	// Key whose held jobs to fetch; "" for pending jobs.
	Key string
	// Run is a unique name of this fetch: outcomes of its jobs carry it.
	Run string
	// Worker that the jobs are for.
	Worker string
	// Max is how many jobs to fetch at most.
	Max int
	// Lease of the jobs.
	Lease time.Duration
	// Rekeys: by KEY_BY jobs have other keys than their records say, so the worker itself puts jobs
	// behind held ones.
	Rekeys bool
	// Scarce: keys take turns, because calls are scarce.
	Scarce bool
	// Untried: the call decides for other jobs. Of the pending jobs without a key the youngest one is fetched that was
	// never rescheduled, else the youngest one whose last call was not refused.
	Untried bool
	// Weights of keys in turns; see WeightsOf.
	Weights string
	// Lines of the destination's keys.
	Lines Lines
}

// FetchReply is the result of a fetch.
type FetchReply struct {
	Dropped  int // ids that were dropped, the ids of expired jobs included
	Held     int // jobs held behind others of their keys, or parked in their lines
	Expired  int
	Paused   bool // the queue is, by an operator
	Drained  bool // no job is pending any more
	Unsorted bool // more pending jobs wait for Sort
	InTurns  bool // jobs are of keys that take turns; not known if Unsorted
	HeldKeys HeldKeys
	// Foreign are tasks of other programs that went to asynq's archive, among Dropped: how many
	// of each type, which is cut off after 100 bytes.
	Foreign map[string]int
	Jobs    []Fetched
	// Malformed is the error of jobs that could not be read, if any.
	Malformed error
}

// Fetched is one job of a FetchReply.
type Fetched struct {
	ID      string
	Message string // encoded; see DecodeMessage
	Fields  Fields
	// ExpiresIn is the time left, by Redis's clock; nil if it never expires.
	ExpiresIn *time.Duration
	Key       string
	// Place among the held jobs of its key; "" for one without a key that was not held.
	Place string
}

// Fields are the changing fields of a job that a fetch reads.
type Fields struct {
	Attempt     int
	Reschedules int
	Crashes     int
	ExpiresAt   string // unix ms, "" for never
	// Refusals is Outcome.Refusals of its last call and the ms since then, after a space;
	// "" if that was not refused.
	Refusals string
}

// RefusedAgo is how long ago the job's last call was refused, and false if it was not.
func (f Fields) RefusedAgo() (ago time.Duration, refused bool) {
	ms, err := strconv.Atoi(f.Refusals[strings.LastIndexByte(f.Refusals, ' ')+1:])
	return time.Duration(ms) * time.Millisecond, err == nil
}

// Map returns the fields that are set under their names in the record.
func (f Fields) Map() map[string]string {
	if f == (Fields{}) {
		return nil
	}
	m := make(map[string]string, 4)
	for name, n := range map[string]int{
		FieldAttempt: f.Attempt, FieldReschedules: f.Reschedules, FieldCrashes: f.Crashes,
	} {
		if n > 0 {
			m[name] = strconv.Itoa(n)
		}
	}
	if f.ExpiresAt != "" {
		m[FieldExpiresAt] = f.ExpiresAt
	}
	return m
}

func (a FetchArgs) eval(ctx context.Context, c redis.Scripter, eval evaluation) *redis.Cmd {
	q, scarce := a.Queue, ""
	switch {
	case a.Scarce && a.Rekeys:
		scarce = "by"
	case a.Scarce:
		scarce = "1"
	}
	order, onFail := OrderNone, "skip"
	if a.Lines.ByKey {
		order = OrderKey
	}
	if a.Lines.Block {
		onFail = "block"
	}
	return eval(fetchScript, ctx, c, []string{PendingKey(q), PausedKey(q), ActiveKey(q), LeaseKey(q)},
		q, a.Lease.Milliseconds(), a.Max, a.Worker, a.Run, a.Key, flag(a.Rekeys), scarce, a.Weights, flag(a.Untried), order, onFail)
}

// evaluation is (*Script).Run or (*Script).EvalSha.
type evaluation func(s *Script, ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// Fetch gives jobs of a queue to a worker. Errors: Redis's; the jobs of a fetch whose reply
// was lost are put back by Reclaim.
func Fetch(ctx context.Context, rdb redis.Scripter, a FetchArgs) (FetchReply, error) {
	return a.reply(a.eval(ctx, rdb, (*Script).Run))
}

func (a FetchArgs) reply(cmd *redis.Cmd) (FetchReply, error) {
	v, err := valuesOf(cmd)
	if err != nil {
		return FetchReply{}, fmt.Errorf("fetch from %s: %w", a.Queue, err)
	}
	r := FetchReply{Dropped: v.integer(), Held: v.integer()}
	heldKeys, _ := v.next().([]any)
	r.HeldKeys = heldKeysOf(heldKeys)
	r.Expired = v.integer()
	state := v.integer()
	r.Paused, r.Drained, r.Unsorted, r.InTurns = state == 1, state == 2, state == 3, state == 4
	foreign, _ := v.next().([]any)
	for types := (&values{left: foreign}); len(types.left) > 0; {
		if r.Foreign == nil {
			r.Foreign = map[string]int{}
		}
		of := types.text()
		r.Foreign[of] = types.integer()
	}
	r.Malformed = v.err
	for len(v.left) > 0 {
		job, err := fetchedOf(v.list())
		if err != nil {
			r.Malformed = fmt.Errorf("fetch from %s: %w", a.Queue, err)
			continue
		}
		r.Jobs = append(r.Jobs, job)
	}
	return r, nil
}

func fetchedOf(v *values) (Fetched, error) {
	f := Fetched{ID: v.text(), Message: v.text()}
	if len(v.left) == 0 {
		return f, v.err
	}
	f.Fields = Fields{Attempt: v.integer(), Reschedules: v.integer(), Crashes: v.integer(), ExpiresAt: v.text()}
	if ms, err := strconv.ParseInt(v.text(), 10, 64); err == nil {
		left := Duration(ms)
		f.ExpiresIn = &left
	}
	if f.Key = v.text(); len(v.left) > 0 {
		f.Place = v.text()
	}
	if len(v.left) > 0 {
		f.Fields.Refusals = v.text()
	}
	return f, v.err
}

// reclaimAtOnce is how many jobs in flight one call of Reclaim looks at.
const reclaimAtOnce = 500

// Reclaim puts back the jobs of fetches, by their runs, whose replies were lost. It looks at all
// jobs in flight, the latest first; one that it misses because hundreds end meanwhile is
// recovered when its lease ends.
func Reclaim(ctx context.Context, rdb redis.Scripter, queue string, runs []string) error {
	keys := []string{ActiveKey(queue), LeaseKey(queue), PendingKey(queue)}
	for from := 0; ; {
		args := []any{queue, from, reclaimAtOnce}
		for _, r := range runs {
			args = append(args, r)
		}
		v, err := valuesOf(reclaimScript.Run(ctx, rdb, keys, args...))
		if err != nil {
			return fmt.Errorf("reclaim jobs of %s: %w", queue, err)
		}
		n, more := v.integer(), v.integer()
		if more == 0 {
			return nil
		}
		from += max(1, reclaimAtOnce/2-n) // others have moved up to where those were, and where jobs ended
	}
}
