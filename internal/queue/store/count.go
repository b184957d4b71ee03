package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var (
	countScript = script("order", "count")
	statsScript = script("stats")
)

// countAtOnce bounds one call of the counting: it takes Redis about 1 ms.
const countAtOnce = 1000

// CountBatch counts the jobs of a batch in one queue by their state.
func CountBatch(ctx context.Context, rdb redis.UniversalClient, queue, batch string) (map[string]int, error) {
	counts := map[string]int{}
	id, score := "", ""
	for {
		reply, err := countScript.Run(ctx, rdb, []string{BatchKey(queue, batch)}, queue, id, score, countAtOnce).Slice()
		if err != nil || len(reply) < 2 {
			return nil, fmt.Errorf("count batch %s in %s: %w", batch, queue, err)
		}
		for i := 2; i+1 < len(reply); i += 2 {
			state, _ := reply[i].(string)
			n, _ := reply[i+1].(int64)
			counts[state] += int(n)
		}
		id, _ = reply[0].(string)
		score, _ = reply[1].(string)
		if id == "" {
			return counts, nil
		}
	}
}

// JobState is the part of a record that decides whether an action applies to the job.
type JobState struct {
	State     string    // "" for a job that does not exist
	Action    Action    // requested; "" for none
	ExpiresAt time.Time // zero: never
	Tombstone bool
}

// ReadStates reads the states of jobs of one queue.
func ReadStates(ctx context.Context, rdb redis.UniversalClient, queue string, ids []string) ([]JobState, error) {
	cmds, err := redispipe.Each(ctx, rdb, ids, func(pipe redis.Pipeliner, id string) *redis.SliceCmd {
		return pipe.HMGet(ctx, TaskKey(queue, id), FieldState, FieldAction, FieldExpiresAt, FieldTombstone)
	})
	if err != nil {
		return nil, fmt.Errorf("read states in %s: %w", queue, err)
	}
	out := make([]JobState, len(ids))
	for i, cmd := range cmds {
		var f [4]string
		for k, v := range cmd.Val() {
			f[k], _ = v.(string)
		}
		out[i] = JobState{State: f[0], Action: Action(f[1]), Tombstone: f[3] != ""}
		if ms, err := strconv.ParseInt(f[2], 10, 64); err == nil {
			out[i].ExpiresAt = time.UnixMilli(ms).UTC()
		}
	}
	return out, nil
}

// QueueStats are the counts of a queue.
type QueueStats struct {
	States map[string]int // by state of the record
	// OldestPending is when the oldest job was first due that waits to run: in the queue, held by the
	// breaker of its key, rescheduled or for a retry. Zero without one. OldestID is its id, "" if unknown.
	OldestPending time.Time
	OldestID      string
	Pause         *PauseInfo // an operator's; nil without one
	// FailedRecently is how many jobs failed within RecentFailures and were not retried.
	FailedRecently int
	// Overdue counts the waiting jobs that have not been expired yet, Expiring the waiting jobs that expire
	// until the time that was asked for.
	Overdue, Expiring int
}

// RecentFailures is the time within which failed jobs are recent.
const RecentFailures = 15 * time.Minute

// Backlog counts the unfinished jobs.
func (s QueueStats) Backlog() int {
	jobs := 0
	for state, n := range s.States {
		if !Final(state) {
			jobs += n
		}
	}
	return jobs
}

// parkedStates have an index of ours, countedStates are all, in the order in which stats.lua counts them.
var (
	parkedStates  = []string{StateFailed, StateCancelled, StateExpired, StatePaused, StateWaiting, StateHeld, StateAccepted}
	countedStates = append([]string{StatePending, StateScheduled, StateActive, StateRetry, StateCompleted}, parkedStates...)
)

// Bounds of the search for the oldest pending job, past tombstones.
const (
	passedAtOnce = 1000 // as in stats.lua
	passedAtMost = 100_000
)

// Stats counts the jobs of a queue. Its cost does not depend on their number, but on the
// tombstones at the head of the queue.
func Stats(ctx context.Context, rdb redis.UniversalClient, queue string) (QueueStats, error) {
	var s QueueStats
	for pass := 0; ; pass += passedAtOnce {
		var err error
		if s, err = readStats(evalStats(ctx, rdb, (*Script).Run, queue, pass, time.Time{}), queue); err != nil {
			return QueueStats{}, err
		}
		if s.States[StatePending] == 0 || !s.OldestPending.IsZero() || pass >= passedAtMost {
			return s, nil
		}
	}
}

// StatsAll is a snapshot of many queues, in one round trip and one that finds out which have jobs. If the
// first thousand ids of a queue are all tombstones, its OldestPending is zero. Expiring counts until the
// given time. After an error the counts of other nodes are there. Errors: Redis's.
func StatsAll(ctx context.Context, rdb redis.UniversalClient, queues []string, until time.Time) ([]QueueStats, error) {
	out := make([]QueueStats, len(queues))
	exist, errs := existing(ctx, rdb, queues, func(q string) []string {
		keys := []string{PendingKey(q), ActiveKey(q), ScheduledKey(q), RetryKey(q), CompletedKey(q), PausedKey(q)}
		for _, state := range parkedStates {
			keys = append(keys, ParkedKey(q, state))
		}
		return keys
	})
	var left []int
	for i, is := range exist {
		if out[i].States = map[string]int{}; is {
			left = append(left, i)
		}
	}
	for part := range slices.Chunk(left, statsAtOnce) {
		cmds := evalAll(ctx, rdb, len(part),
			func(c redis.Scripter, i int) *redis.Cmd {
				return evalStats(ctx, c, (*Script).EvalSha, queues[part[i]], 0, until)
			},
			func(i int) *redis.Cmd { return evalStats(ctx, rdb, (*Script).Run, queues[part[i]], 0, until) })
		for k, i := range part {
			s, err := readStats(cmds[k], queues[i])
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out[i] = s
		}
	}
	return out, cmp.Or(errs...)
}

// statsAtOnce bounds one pipeline.
const statsAtOnce = 1000

func evalStats(ctx context.Context, c redis.Scripter, eval evaluation, queue string, pass int, until time.Time) *redis.Cmd {
	return eval(statsScript, ctx, c, []string{PendingKey(queue)}, queue, pass, RecentFailures.Milliseconds(), until.UnixMilli())
}

func readStats(cmd *redis.Cmd, queue string) (QueueStats, error) {
	reply, err := cmd.Slice()
	if err != nil {
		return QueueStats{}, fmt.Errorf("count jobs of %s: %w", queue, err)
	}
	if len(reply) != len(countedStates)+6 {
		return QueueStats{}, fmt.Errorf("count jobs of %s: %d values", queue, len(reply))
	}
	integer := func(i int) int { n, _ := reply[i].(int64); return int(n) }
	s := QueueStats{States: map[string]int{}}
	for i, state := range countedStates {
		s.States[state] = integer(i)
	}
	rest := len(countedStates)
	if text, _ := reply[rest].(string); text != "" {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			s.OldestPending = time.UnixMilli(ms).UTC()
		}
	}
	if text, _ := reply[rest+1].(string); text != "" {
		pause := ParsePause(text)
		s.Pause = &pause
	}
	s.FailedRecently, s.Overdue, s.Expiring = integer(rest+2), integer(rest+3), integer(rest+4)
	s.OldestID, _ = reply[rest+5].(string)
	return s, nil
}

// Backlogs counts the unfinished jobs of the destinations that have any, without Tidegate's own.
// After an error it still counts the jobs on other nodes. Errors: Redis's.
func (n Namespace) Backlogs(ctx context.Context, rdb redis.UniversalClient) (map[string]int, error) {
	queues, err := n.ListQueues(ctx, rdb)
	if err != nil {
		return nil, err
	}
	queues = slices.DeleteFunc(queues, SystemQueue)
	stats, err := StatsAll(ctx, rdb, queues, time.Time{})
	out := map[string]int{}
	for i, q := range queues {
		if jobs := stats[i].Backlog(); jobs > 0 {
			destination, _, _ := ParseQueue(q)
			out[destination] += jobs
		}
	}
	return out, err
}
