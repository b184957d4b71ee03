package callbacks

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// watchEvery is how often one of the workers counts callbacks that were given up.
const watchEvery = time.Minute

// watch logs how many callbacks have failed for good or expired, until ctx ends.
func (c *Callbacks) watch(ctx context.Context) {
	for {
		call, cancel := context.WithTimeout(ctx, stepWithin)
		err := c.logGivenUp(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.log.DebugContext(ctx, "callbacks that were given up could not be counted", "error", err)
		}
		if !wait(ctx, c.watchEvery, nil) {
			return
		}
	}
}

// logGivenUp counts the callbacks that were given up since the last count of any worker.
func (c *Callbacks) logGivenUp(ctx context.Context) error {
	mine, err := lease.Once(ctx, c.rdb, c.ns.SlotKey(Destination, "watch"), c.watchEvery*9/10)
	if err != nil || !mine {
		return err
	}
	now, err := c.client.Now(ctx)
	if err != nil {
		return err
	}
	until := strconv.FormatInt(now.UnixMilli()-1, 10) // of this millisecond more may come
	since, err := c.rdb.SetArgs(ctx, c.ns.SlotKey(Destination, "watched"), until, redis.SetArgs{Get: true}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	var n [2]int64
	for i, state := range []string{store.StateFailed, store.StateExpired} {
		if n[i], err = c.rdb.ZCount(ctx, store.ParkedKey(c.ns.Queue(Destination, store.Default), state), "("+since, until).Result(); err != nil {
			return err
		}
	}
	if n[0]+n[1] > 0 {
		c.log.WarnContext(ctx, "callbacks were given up; failed ones can be retried", "failed", n[0], "expired", n[1],
			"look", "tidegate list --destination "+Destination+" --status failed,expired")
	}
	return nil
}
