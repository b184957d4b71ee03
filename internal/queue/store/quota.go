package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var quotaScript = redis.NewScript(source("quota"))

// Quota bounds what a token enqueues. A zero field does not.
type Quota struct {
	Each       float64 // µs for a job, of a rate (GCRA)
	Burst      int     // of the rate: jobs at once
	MaxBacklog int     // jobs that have not ended
}

const (
	// checkedAtOnce is how many jobs of a full backlog are checked in a round trip, quotaRounds how often for a request.
	checkedAtOnce, quotaRounds = 500, 4
	// checkedFor is how long a job that was checked or taken is not checked again: refusals must not cost Redis much.
	checkedFor = time.Second
	// notYetEnqueued is how long a job that is not there may still be enqueued by the request that took it.
	notYetEnqueued = 35 * time.Second
)

// QuotaKey is the ZSET of the unfinished jobs of a token's name, as "<queue> <id>", by when they were last known not to
// have ended, unix milliseconds. Ended ones are taken out once the backlog is full.
func (n Namespace) QuotaKey(name string) string { return n.SlotKey("token-"+name, "backlog") }

// QuotaRateKey is when the rate of a token's name has all of its burst again, unix microseconds.
func (n Namespace) QuotaRateKey(name string) string { return n.SlotKey("token-"+name, "rate") }

// TakeQuota takes jobs that are to be enqueued from the quota of a token's name, from the first as many as there is room
// for. wait is until its rate has room for the next; 0: its backlog is full.
func (n Namespace) TakeQuota(ctx context.Context, rdb redis.UniversalClient, name string, q Quota, of []Ref) (taken int, wait time.Duration, err error) {
	var checked []any
	for range quotaRounds {
		args := append([]any{q.Each, q.Burst, q.MaxBacklog, len(of) - taken, len(checked) / 3}, checked...)
		for _, ref := range of[taken:] {
			args = append(args, ref.String())
		}
		got, err := quotaScript.Run(ctx, rdb, []string{n.QuotaKey(name), n.QuotaRateKey(name)}, args...).Int64Slice()
		if err != nil || len(got) != 2 {
			return taken, 0, fmt.Errorf("take from the quota of %s: %w", name, err)
		}
		taken += int(got[0])
		if wait = time.Duration(got[1]) * time.Millisecond; taken == len(of) || wait > 0 {
			return taken, wait, nil
		}
		if checked, err = n.checkBacklog(ctx, rdb, name); err != nil || checked == nil {
			return taken, 0, err
		}
	}
	return taken, 0, nil
}

// ReturnQuota takes a job out of the backlog of a token's name that was taken, and refused.
func (n Namespace) ReturnQuota(ctx context.Context, rdb redis.UniversalClient, name string, of Ref) error {
	// Another request may have enqueued it meanwhile: checkBacklog looks, as it was not checked for long.
	if err := rdb.ZAddXX(ctx, n.QuotaKey(name), redis.Z{Score: 1, Member: of.String()}).Err(); err != nil {
		return fmt.Errorf("return to the quota of %s: %w", name, err)
	}
	return nil
}

// checkBacklog reads which of the jobs that were checked longest ago have ended, as arguments of the script; nil if there
// are none.
func (n Namespace) checkBacklog(ctx context.Context, rdb redis.UniversalClient, name string) (args []any, err error) {
	oldest, err := rdb.ZRangeWithScores(ctx, n.QuotaKey(name), 0, checkedAtOnce-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read the backlog of %s: %w", name, err)
	}
	now := rdb.Time(ctx)
	if err := now.Err(); err != nil {
		return nil, fmt.Errorf("read the backlog of %s: %w", name, err)
	}
	if recent := slices.IndexFunc(oldest, func(z redis.Z) bool { return now.Val().UnixMilli()-int64(z.Score) < checkedFor.Milliseconds() }); recent >= 0 {
		oldest = oldest[:recent]
	}
	if len(oldest) == 0 {
		return nil, nil
	}
	states, err := redispipe.Each(ctx, rdb, oldest, func(pipe redis.Pipeliner, z redis.Z) *redis.SliceCmd {
		ref, _ := parseRef(z.Member.(string)) //nolint:forcetypeassert // Redis has texts only
		return pipe.HMGet(ctx, TaskKey(ref.Queue, ref.ID), FieldState)
	})
	if err != nil {
		return nil, fmt.Errorf("read the backlog of %s: %w", name, err)
	}
	for i, z := range oldest {
		state, there := states[i].Val()[0].(string)
		ended := "0"
		switch {
		case !there && now.Val().UnixMilli()-int64(z.Score) < notYetEnqueued.Milliseconds():
			continue
		case !there, Final(state):
			ended = "1"
		}
		args = append(args, z.Member, strconv.FormatInt(int64(z.Score), 10), ended)
	}
	return args, nil
}
