package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A failed job can block the later jobs of its key, and only a person can free the key. One outage may block hundreds of
// keys, so a notice names one of the failed jobs and counts the other keys. The next notice about the destination comes
// blockedEvery later at the earliest, and only about jobs that have failed since and still block their keys.
const (
	blockedEvery = 10 * time.Minute
	// blockedRead is how many failed jobs of each priority are looked at, the latest first.
	blockedRead = 1000
)

// onJob records a failed job that blocks its key. It does not block. Failures of a destination within a few seconds share
// an alert job. It is due some seconds later, when all workers have enqueued it: an alert job that has run cannot be
// enqueued again.
func (a *Alerts) onJob(e publisher.JobEvent) {
	if !e.Blocks {
		return
	}
	slot := a.local().Truncate(keysEvery).Add(2 * keysEvery)
	id := e.Destination + ".blocked"
	a.trigger(a.o.receivers(), fmt.Sprintf("%s.%d", id, slot.Unix()), slot, alertJob{Single: &single{ID: id, Kind: blockedKeys, Destination: e.Destination}})
}

// sendBlocked sends a notice about the jobs that have failed since the last notice and block their keys, if there are any.
// Within blockedEvery after the last notice it leaves that to one job which is due at the end of that time.
func (s *sender) sendBlocked(ctx context.Context, job *jobs.Job, x *single) error {
	if wait := s.PostFrom.Sub(s.now); wait > 0 {
		id := fmt.Sprintf("%s.next-%d.%s", x.ID, s.PostFrom.Unix(), s.to.Name())
		if jobID(id) == job.ID { // clocks differ
			return jobs.Reschedule(wait)
		}
		return s.a.enqueue(ctx, []trigger{{id, s.to, s.PostFrom, alertJob{Single: x}}})
	}
	blocking, whole, err := s.a.blockingJobs(ctx, x.Destination)
	if err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(blocking), func(b blockingJob) bool { return !b.failed.After(s.Since) })
	if len(fresh) == 0 { // all were retried or cancelled meanwhile
		return nil
	}
	facts := *x
	if err := s.a.describeBlocked(ctx, &facts, fresh[0]); err != nil {
		return err
	}
	keys := map[string]bool{}
	for _, b := range blocking {
		keys[b.key] = true
	}
	facts.At, facts.Others, facts.AtLeast = s.now, len(keys)-1, !whole
	n := facts.compose(s.a.composer)
	n.ID = s.a.singleID(x.ID, s.now)
	n.Dedup, n.At = n.ID, facts.Since
	if err := s.send(ctx, n, &s.Posted); err != nil {
		return err
	}
	s.Since, s.PostFrom = fresh[len(fresh)-1].failed, s.now.Add(blockedEvery)
	return nil
}

// blockingJob is a failed job that blocks a key.
type blockingJob struct {
	queue, id, key string
	failed         time.Time
}

// blockingJobs returns the failed jobs of a destination that block their keys, in the order in which they failed. whole is
// false if a priority has more failed jobs than blockedRead, and only the latest were looked at.
func (a *Alerts) blockingJobs(ctx context.Context, destination string) (list []blockingJob, whole bool, err error) {
	whole = true
	for _, queue := range a.store.ns.Queues(destination) {
		ids, err := a.rdb.ZRevRange(ctx, store.FailedKey(queue), 0, blockedRead-1).Result()
		if err != nil {
			return nil, false, fmt.Errorf("alerts: read failed jobs: %w", err)
		}
		records, err := redispipe.Each(ctx, a.rdb, ids, func(pipe redis.Pipeliner, id string) *redis.SliceCmd {
			return pipe.HMGet(ctx, store.TaskKey(queue, id), store.FieldState, store.FieldLine, store.FieldEndedAt)
		})
		if err != nil {
			return nil, false, fmt.Errorf("alerts: read failed jobs: %w", err)
		}
		for i, id := range ids {
			f := records[i].Val()
			line, _ := f[1].(string)
			ended, _ := f[2].(string)
			failed, _ := strconv.ParseInt(ended, 10, 64)
			if key, block := store.ParseLine(line); block && f[0] == store.StateFailed {
				list = append(list, blockingJob{queue, id, key, time.UnixMilli(failed)})
			}
		}
		whole = whole && len(ids) < blockedRead
	}
	slices.SortFunc(list, func(x, y blockingJob) int { return cmp.Or(x.failed.Compare(y.failed), strings.Compare(x.id, y.id)) })
	return list, whole, nil
}

// describeBlocked sets the facts about one failed job: when and why it failed, and how many jobs wait behind it.
func (a *Alerts) describeBlocked(ctx context.Context, x *single, b blockingJob) error {
	line, err := a.rdb.ZCard(ctx, store.LineKey(b.queue, b.key)).Result()
	if err != nil {
		return fmt.Errorf("alerts: read the order of a key: %w", err)
	}
	problem, err := a.rdb.HGet(ctx, store.TaskKey(b.queue, b.id), store.FieldLastError).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("alerts: read a failed job: %w", err)
	}
	x.Job, x.Key, x.Since, x.Problem, x.Backlog = b.id, b.key, b.failed, problem, int(line)-1
	return nil
}
