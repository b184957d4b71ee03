package callbacks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/lease"
)

const (
	// watchEvery is how often one of the workers lists given up callbacks.
	watchEvery = time.Minute
	// mostSeen bounds how many of them it reads.
	mostSeen = 1000
)

// watch logs callbacks that have failed for good or expired, until ctx ends.
func (c *Callbacks) watch(ctx context.Context) {
	for {
		call, cancel := context.WithTimeout(ctx, stepWithin)
		err := c.look(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.log.DebugContext(ctx, "callbacks that were given up could not be looked for", "error", err)
		}
		if !wait(ctx, c.watchEvery, nil) {
			return
		}
	}
}

// lost are the callbacks of one receiver that were given up.
type lost struct {
	failed, expired int
	example         string
}

// look logs one line for each receiver with callbacks that were given up since the last look
// of any worker.
func (c *Callbacks) look(ctx context.Context) error {
	mine, err := lease.Once(ctx, c.rdb, c.ns.SlotKey(Destination, "watch"), c.watchEvery*9/10)
	if err != nil || !mine {
		return err
	}
	now, err := c.client.Now(ctx)
	if err != nil {
		return err
	}
	until := fmt.Sprint(now.UnixMilli() - 1) // of this millisecond more may come
	since, err := c.rdb.SetArgs(ctx, c.ns.SlotKey(Destination, "watched"), until, redis.SetArgs{Get: true}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	found := map[string]*lost{}
	queue := c.ns.Queue(Destination, store.Default)
	for state, count := range map[string]func(*lost){
		store.StateFailed: func(l *lost) { l.failed++ }, store.StateExpired: func(l *lost) { l.expired++ },
	} {
		ids, err := c.rdb.ZRangeByScore(ctx, store.ParkedKey(queue, state), &redis.ZRangeBy{
			Min: "(" + since, Max: until, Count: mostSeen,
		}).Result()
		if err != nil {
			return err
		}
		for _, id := range ids {
			destination, _, _ := strings.Cut(id, ":")
			if found[destination] == nil {
				found[destination] = &lost{example: id}
			}
			count(found[destination])
		}
	}
	for _, destination := range slices.Sorted(maps.Keys(found)) {
		l := found[destination]
		why, _ := c.rdb.HGet(ctx, store.TaskKey(queue, l.example), store.FieldLastError).Result()
		c.log.WarnContext(ctx, "callbacks were given up; failed ones can be retried",
			"destination", destination, "failed", l.failed, "expired", l.expired, "example", l.example, "why", why,
			"look", "tidegate list --destination "+Destination+" --key "+destination)
	}
	return nil
}
